package wasm

// Running returns how many calls are under way.
func (r *Runtime) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.entries {
		n += e.runs
	}
	return n
}

// Compiling stands for a compilation, until done is called.
func (r *Runtime) Compiling() (done func()) {
	r.working.Add(1)
	return r.working.Done
}

// Curse has the next compilations panic beside the compiler.
func (r *Runtime) Curse() { r.disk = func() *disk { panic("for the test") } }
