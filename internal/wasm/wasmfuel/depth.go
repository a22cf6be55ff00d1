package wasmfuel

// How much of the stack a function takes: each value that is live while others are computed may have
// its own slot, and so may each value at a place where control flow merges.
const (
	perFrame   = 448 // saved registers, and the space for calls
	perSlot    = 8
	perAccess  = 2 // additional values of a load or store: addresses
	perSegment = 2
	loopMerges = 2 // more than for another block, because of its wrappings
)

// frame returns the largest size of the function's stack frame, in bytes.
func (c *scanner) frame() int64 {
	slot := perSlot
	if c.vectors {
		slot *= 2
	}
	return int64(perFrame + slot*c.values)
}

// merged returns how many values there may be where control flow merges: locals, globals, and the
// address of the memory.
func (c *scanner) merged() int {
	const added, memory = 2, 2 // added locals
	return c.locals + c.m.mutable + addedGlobals + added + memory
}
