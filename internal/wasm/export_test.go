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

// Gate has each compilation wait for a value.
func (r *Runtime) Gate(open <-chan struct{}) {
	r.disk = func() *disk {
		<-open
		return nil
	}
}

// Compilations returns how many modules are compiled now, and how many wait to be.
func (r *Runtime) Compilations() (n, waiting int) {
	return r.places.Limit() - r.places.Free(), r.places.Waiting()
}

// Memory returns how many bytes of the memory of all calls nobody holds.
func (r *Runtime) Memory() int64 { return r.memory.Free() }

// Compute has so many calls compute at once, if that is above 0. It returns how many do, and
// how many wait to.
func (r *Runtime) Compute(most int) (n, waiting int) {
	if most > 0 {
		r.computing.Resize(most)
	}
	return r.computing.Limit() - r.computing.Free(), r.computing.Waiting()
}

// Loading returns how many bytes of the room of modules that are not compiled yet are free.
func (r *Runtime) Loading() int64 { return r.loading.Free() }
