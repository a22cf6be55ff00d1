package wasmfuel

// What a function takes of the stack: each value that lives on while others are computed
// may have a slot of its own there, and each that parts of the code come together with.
const (
	perFrame   = 448 // saved registers, and what calls need
	perSlot    = 8
	perAccess  = 2 // values more of a load or store: the places in memory
	perSegment = 2
	loopMerges = 2 // more than of another block, for its wrappings
)

// frame is how many bytes of the stack the function takes at most.
func (c *scanner) frame() int64 {
	slot := perSlot
	if c.vectors {
		slot *= 2
	}
	return int64(perFrame + slot*c.values)
}

// merged is how many values there may be where parts of the code come together: locals,
// globals, and where the memory is.
func (c *scanner) merged() int {
	const added, memory = 2, 2 // locals
	return c.locals + c.m.mutable + addedGlobals + added + memory
}
