package wasmfuel

import (
	"cmp"
	"slices"
)

// body.go computes the costs: each executed instruction costs one step, except block, loop, else,
// end and nop, which are free. Instructions that are always executed together are paid for at the
// first of them.

// edit is a change to a function's body.
type edit struct {
	at   uint32 // an offset into the module
	arg  uint32 // the segment, the function, the label, or ofModule
	drop uint8  // how many bytes of the module are replaced
	kind editKind
}

type editKind byte

const (
	paySegment   editKind = iota // pays for the segment arg
	payEntry                     // pays for the segment at the beginning of the function, and checks the slice
	payHead                      // checks whether the slice is overdrawn, and pays for the segment arg
	payHeadHere                  // the same, for a loop without a wrapping
	payBytes                     // pays for the value on top of the stack
	payElements                  // the same, for elements of a table
	payPages                     // the same, for pages of memory
	payRef                       // pays for a reference
	wrapLoop                     // begins the wrapping of a loop
	unwrapLoop                   // ends it
	unwrapEntry                  // ends the wrapping of the function
	nameFunction                 // names the function arg
	nameLabel                    // names the label arg
	afterCall                    // reloads the globals after a call
	moveMemory                   // replaces an instruction that moves memory by a call of the added function arg
)

// ofModule is the arg of an afterCall if the called function may be one of the module.
const ofModule = 1

// loopWrapping is how many blocks wrap a loop.
const loopWrapping = 3

// dead is the segment of instructions that are never executed.
const dead = -1

// frame is a block, a loop, an if, or the function itself.
type frame struct {
	op     byte // opElse after the else of an if; opBlock for the function
	before int  // the segment that it began in, or dead
	// leaves is the index of the outermost frame that a branch in this frame targets. It is below the
	// frame's own index if some path leaves the frame other than at its end.
	leaves  int
	arity   int  // number of values that its label takes
	reached bool // some branch targets its label
	wrapped int  // number of wrapped loops up to this frame
	nested  int  // number of loops up to this frame
}

// scanner reads a function's body once and computes the edits. It is reused for one function after
// the other.
type scanner struct {
	m      *module
	r      *reader
	edits  []edit
	costs  []int64 // of the segments
	cur    int     // the segment of the current instruction, or dead
	stack  []frame
	locals int
	// Work of the compiler: roughly the number of values that it must remember, and the number of places
	// where control flow branches.
	weight, branches int
	accesses         int  // to memory, whose weight is more; see perExit
	nests            int  // for nested loops; see maxNests
	total, allNests  int  // sums over all functions so far
	allBranches      int  // sum of the squares of branches
	allLocals        int  // sum of locals over all functions so far
	loops, calls     bool // some are reachable
	wrapped          int  // number of wrapped loops

	values  int  // how many values the compiler may keep on the stack at once
	vectors bool // some of them may be v128
	grows   bool // some function so far grows a table

	results  []byte // of the function
	groups   int    // number of groups of locals
	groupsAt span   // where the groups are, after their number
}

// maxWeight bounds the cost of compiling a function, and maxTotal that of all: a unit is roughly a
// hundred bytes of memory during compilation, and a few bytes of native code.
const (
	maxWeight = 4 << 20
	maxTotal  = 128 << 20
)

// perLoopLocal is the weight of each local for each loop: the compiler makes a value for it at the
// head of the loop, and of its wrappings.
const perLoopLocal = 27

// maxNests bounds the compiler's work on the loops of a function, and maxAllNests that on those of
// all. The work grows with the square of the locals, and with the nesting of loops: a unit was
// measured as 10 to 50 ns.
const (
	maxNests    = 50_000_000
	maxAllNests = 400_000_000
)

// maxAllBranches bounds the compiler's work on the branches of all functions, which grows with the
// square of each function's branches: a unit was measured as 4 to 25 ns. A Go program of 14 MB has
// an eighth of it.
const maxAllBranches = 1_000_000_000

// someLocals bounds the locals of all functions, their parameters among them, beyond one for each byte of the module: a function
// may have 50 000 of them in a few bytes, and the compiler keeps eight bytes for each for as long as the module is compiled. A Go
// program of 7 MB has 20 000.
const someLocals = 64 << 10

// A small module may not take the compiler as long as a large one: it may have someWork units of each kind,
// and workPerByte more for each of its bytes.
const (
	someWork    = 50_000_000
	workPerByte = 160
)

// within bounds the units of work of a module.
func (m *module) within(all int) int { return min(all, someWork+workPerByte*len(m.buf)) }

// perLoop is how many branches a loop counts as.
const perLoop = 10

// maxWrapped is how many loops of a function are wrapped: the compiler's work grows with the square
// of their number.
const maxWrapped = 300

// scan reads the function whose locals begin at pos, up to end.
func (c *scanner) scan(pos, end int, t signature) *Error {
	c.r, c.results = &reader{buf: c.m.buf, pos: pos, end: end}, t.results
	c.edits, c.costs, c.stack = c.edits[:0], c.costs[:0], c.stack[:0]
	c.weight, c.branches, c.accesses, c.nests, c.wrapped, c.locals, c.loops, c.calls = 0, 0, 0, 0, 0, len(t.params), false, false
	c.scanLocals()
	c.vectors = c.m.vectors || c.r.vectors
	c.values = len(t.results) + 2*c.merged()
	c.open(opBlock, 0)
	c.begin(payEntry)
	for c.r.err == nil && len(c.stack) > 0 {
		at := c.r.pos
		c.instruction(at, c.r.byte())
		if c.weight+perExit*c.accesses > maxWeight || c.branches > maxBranches || c.nests > maxNests {
			c.r.fail(at, "the function at %#x is too complex to be compiled", pos)
		}
	}
	c.total += c.weight
	c.allNests += c.nests
	c.allBranches += c.branches * c.branches
	c.allLocals += c.locals
	if c.allLocals > someLocals+len(c.m.buf) || c.total > maxTotal || c.allNests > c.m.within(maxAllNests) || c.allBranches > c.m.within(maxAllBranches) {
		c.r.fail(pos, "the module is too complex to be compiled")
	}
	if c.r.err == nil && c.r.more() {
		c.r.fail(c.r.pos, "%d bytes behind the end of a function", end-c.r.pos)
	}
	return c.r.err
}

func (c *scanner) scanLocals() {
	at := c.r.pos
	c.groups = c.r.count("groups of locals", 2, maxLocals)
	c.groupsAt.start = c.r.pos
	defer func() { c.groupsAt.end = c.r.pos }()
	for range c.groups {
		n := c.r.u32()
		c.r.valueType()
		if int64(c.locals)+int64(n) > maxLocals {
			c.r.fail(at, "a function has more than %d locals", maxLocals)
			return
		}
		c.locals += int(n)
	}
}

// open enters a frame.
func (c *scanner) open(op byte, arity int) {
	if len(c.stack) >= maxDepth {
		c.r.fail(c.r.pos, "blocks nested more than %d deep", maxDepth)
		return
	}
	f := frame{op: op, before: c.cur, leaves: len(c.stack), arity: arity}
	if len(c.stack) > 0 {
		outer := c.stack[len(c.stack)-1]
		f.wrapped, f.nested = outer.wrapped, outer.nested
	}
	c.values += c.merged()
	if op == opLoop {
		c.values += loopMerges * c.merged()
		f.nested++
		c.weight += perLoopLocal * c.locals
		c.nests += f.nested * c.locals * c.locals
	}
	c.stack = append(c.stack, f)
}

// begin starts a segment at the current position. Segments that cost nothing are free.
func (c *scanner) begin(kind editKind) {
	c.cur = len(c.costs)
	c.costs = append(c.costs, 0)
	c.values += perSegment
	c.edits = append(c.edits, edit{at: uint32(c.r.pos), kind: kind, arg: uint32(c.cur)})
}

// branch reads the label of a branch, and records the jump.
func (c *scanner) branch() {
	at := c.r.pos
	label := c.r.index("label", len(c.stack))
	if c.r.err != nil {
		return
	}
	target := len(c.stack) - 1 - int(label)
	if more := loopWrapping * (c.stack[len(c.stack)-1].wrapped - c.stack[target].wrapped); more > 0 {
		c.edits = append(c.edits, edit{at: uint32(at), drop: uint8(c.r.pos - at), kind: nameLabel, arg: label + uint32(more)})
	}
	c.jump(target)
}

// jump records a jump to the label of a frame.
func (c *scanner) jump(target int) {
	c.weight += 1 + c.stack[target].arity
	if c.cur == dead {
		return
	}
	top := &c.stack[len(c.stack)-1]
	top.leaves = min(top.leaves, target)
	c.stack[target].reached = true
}

// instruction reads one instruction.
func (c *scanner) instruction(at int, op byte) {
	c.weight += 1 + weights[op]
	switch op {
	case opNop, opBlock, opLoop, opElse, opEnd, opBr, opDrop, opLocalGet:
	default:
		c.values++
		if immediateOf(op) == address {
			c.values += perAccess
			c.accesses++
		}
	}
	switch op {
	case opBlock, opIf, opBrIf, opBr:
		c.branches++
	case opLoop:
		c.branches += perLoop
	}
	switch op {
	case opNop, opBlock, opLoop, opElse, opEnd: // free
	default:
		if c.cur != dead {
			c.costs[c.cur]++
		}
	}
	switch op {
	case opNop:
	case opLocalGet, opLocalSet, opLocalTee:
		c.r.index("local", c.locals) // the local behind the last one may be added by the meter
	case opBlock, opLoop, opIf:
		c.enter(at, op)
	case opElse:
		c.otherwise(at)
	case opEnd:
		c.leave(at)
	case opBr, opBrIf:
		c.branch()
		c.afterBranch(op == opBrIf)
	case opBrTable:
		for range c.r.count("targets", 1, maxTargets) + 1 {
			c.weight += perTarget
			c.branch()
		}
		c.afterBranch(false)
	case opReturn, opUnreachable:
		c.jump(0)
		c.afterBranch(false)
	case opCall, opRefFunc:
		if op == opRefFunc {
			c.edit(at, payRef)
		}
		c.r.function(c.m, func(at, length int, function uint32) {
			c.edits = append(c.edits, edit{at: uint32(at), drop: uint8(length), kind: nameFunction, arg: function})
			if op == opCall {
				c.call(c.m.typeOf(function), int(function) >= len(c.m.imports))
			}
		})
	case opCallIndirect:
		t := c.r.index("type", len(c.m.types))
		c.r.u32()
		if c.r.err == nil {
			c.call(c.m.types[t], true)
		}
	case opMemoryGrow:
		c.r.constant("memory", 0)
		c.edit(at, payPages)
	case opMisc:
		c.misc(at)
	case opVector:
		c.vector()
	default:
		c.r.pass(op, immediateOf(op), c.m)
	}
}

// afterBranch continues behind a branch. sometimes says that the branch is conditional.
func (c *scanner) afterBranch(sometimes bool) {
	switch {
	case c.cur == dead:
	case sometimes:
		c.begin(paySegment)
	default:
		c.cur = dead
	}
}

// call continues behind a call. All globals are read again there, which adds to the compiler's work.
func (c *scanner) call(t signature, ofItsOwn bool) {
	const perGlobal = 8
	c.values += len(t.params) + 2*len(t.results) + c.merged() - c.locals
	c.weight += len(t.params) + len(t.results) + perGlobal*(c.m.mutable+addedGlobals)
	if c.cur != dead {
		c.calls = true
		e := edit{at: uint32(c.r.pos), kind: afterCall}
		if ofItsOwn {
			e.arg = ofModule
		}
		c.edits = append(c.edits, e)
	}
}

// enter reads the type of a frame and enters it. A loop without parameters is wrapped.
func (c *scanner) enter(at int, op byte) {
	params, results := c.blockType()
	c.values += params + results
	c.weight += params + results + c.locals
	arity := results
	if op == opLoop {
		arity = params
	}
	live := c.cur != dead
	if c.open(op, arity); c.r.err != nil || !live {
		return
	}
	switch {
	case op == opIf:
		c.begin(paySegment)
	case op == opLoop && params == 0 && c.wrapped < maxWrapped:
		c.loops = true
		c.wrapped++
		c.edits = append(c.edits, edit{at: uint32(at), drop: uint8(c.r.pos - at), kind: wrapLoop})
		c.stack[len(c.stack)-1].wrapped++
		c.begin(payHead)
	case op == opLoop:
		c.loops = true
		c.begin(payHeadHere)
	}
}

// blockType reads the type of a block.
func (c *scanner) blockType() (params, results int) {
	if c.r.more() {
		switch b := c.r.buf[c.r.pos]; {
		case b == typeEmpty:
			c.r.pos++
			return 0, 0
		case isValueType(b):
			c.r.pos++
			return 0, 1
		}
	}
	at := c.r.pos
	i := c.r.signed(33)
	if i < 0 || i >= int64(len(c.m.types)) {
		c.r.fail(at, "unknown type %d of a block", i)
	}
	if c.r.err != nil {
		return 0, 0
	}
	return len(c.m.types[i].params), len(c.m.types[i].results)
}

// otherwise continues at the else of an if.
func (c *scanner) otherwise(at int) {
	top := &c.stack[len(c.stack)-1]
	if top.op != opIf {
		c.r.fail(at, "else without if")
		return
	}
	top.op = opElse
	c.values += c.merged()
	if c.cur = top.before; c.cur != dead {
		c.begin(paySegment)
	}
}

// leave ends a frame. The code after it belongs to the segment from before it if every path through
// the frame reaches its end.
func (c *scanner) leave(at int) {
	index := len(c.stack) - 1
	f := c.stack[index]
	c.stack = c.stack[:index]
	if index == 0 {
		c.edits = append(c.edits, edit{at: uint32(at), kind: unwrapEntry})
		return
	}
	outer := &c.stack[index-1]
	if f.wrapped > outer.wrapped {
		c.edits = append(c.edits, edit{at: uint32(c.r.pos), kind: unwrapLoop})
	}
	outer.leaves = min(outer.leaves, f.leaves)
	switch {
	case f.before == dead:
		c.cur = dead
	case f.op == opLoop && c.cur == dead: // its end is never reached
		c.begin(paySegment)
	case f.leaves >= index:
		c.cur = f.before
	case f.op == opLoop: // only the last pass reaches its end
	case c.cur == dead || f.reached || f.op != opBlock:
		c.begin(paySegment)
	}
}

// edit adds an edit at an offset, unless the code is dead.
func (c *scanner) edit(at int, kind editKind) {
	if c.cur != dead {
		c.edits = append(c.edits, edit{at: uint32(at), kind: kind})
	}
}

// misc reads what follows opMisc. A number in a longer encoding than necessary is refused as
// unknown, since readers could differ.
func (c *scanner) misc(at int) {
	op := c.r.byte()
	if int(op) >= len(miscImmediates) {
		c.r.fail(at, "unknown instruction %#x %#x", opMisc, op)
		return
	}
	c.r.pass(op, miscImmediates[op], c.m)
	c.weight += miscWeights[op]
	c.branches += miscBranches[op]
	switch op {
	case miscMemoryInit, miscMemoryCopy, miscMemoryFill:
		c.move(at, op)
	case miscTableInit, miscTableCopy, miscTableGrow, miscTableFill:
		c.grows = c.grows || op == miscTableGrow
		c.edit(at, payElements)
	}
}

// move makes an instruction that moves memory pay for it, and splits it into pieces if it may be
// larger than one. Without a memory the instruction is left: the runtime refuses it.
func (c *scanner) move(at int, op byte) {
	function := 0
	switch {
	case c.cur == dead || c.r.err != nil:
		return
	case c.m.memory == nil:
	case op == miscMemoryFill:
		function = fillFunction
	case op == miscMemoryCopy:
		function = copyFunction
	default:
		segment := (&reader{buf: c.m.buf, pos: at + 2, end: c.r.pos}).u32()
		i, found := slices.BinarySearchFunc(c.m.large, segment, func(l large, index uint32) int { return cmp.Compare(l.index, index) })
		if found {
			function = addedFunctions + i
		}
	}
	if function == 0 {
		c.edit(at, payBytes)
		return
	}
	c.edits = append(c.edits, edit{at: uint32(at), drop: uint8(c.r.pos - at), kind: moveMemory, arg: uint32(function)})
}

// vector reads what follows opVector: one byte or, from 0x80 on, two, of which the second must be 1.
// The runtime reads that second byte as a nop.
func (c *scanner) vector() {
	op := c.r.byte()
	c.weight += perVector
	c.values += perAccess
	c.vectors = true
	if op >= 0x80 {
		c.r.constant("second byte of a vector instruction", 1)
	}
	what := vectorImmediate(op)
	if what == address || what == addressAndLane {
		c.accesses++
	}
	c.r.pass(op, what, c.m)
}
