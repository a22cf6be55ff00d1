package wasmfuel

// code writes the bodies of the module's functions with their edits, and those of the added
// functions.
func (w *writer) code() *Error {
	at := w.m.section[codeSection]
	r := &reader{buf: w.m.buf, pos: at.start, end: at.end}
	c := &scanner{m: w.m}
	var err *Error
	w.section(codeSection, func() {
		w.u32(uint32(len(w.m.defined) + addedFunctions + len(w.m.large) + len(w.m.imports)))
		for i := range w.m.defined {
			size := int(r.u32())
			start, end := r.pos, r.pos+size
			r.skip(size)
			if err = c.scan(start, end, w.m.typeOf(uint32(len(w.m.imports)+i))); err != nil {
				return
			}
			w.m.frame = max(w.m.frame, c.frame())
			w.sized(func() { w.body(c, end) })
		}
		w.sized(w.refill)
		for _, p := range payers {
			w.sized(func() { w.payer(p.op, p.shift) })
		}
		w.sized(w.payReference)
		w.sized(w.fill)
		w.sized(w.copyMemory)
		for _, l := range w.m.large {
			w.sized(func() { w.initialize(l) })
		}
		for i, t := range w.m.imports {
			w.sized(func() { w.thunk(uint32(i), w.m.types[t], w.m.repeats[i], w.m.bounds[i]) })
		}
	})
	w.m.grows = c.grows
	return err
}

// body copies a function's body with its edits.
func (w *writer) body(c *scanner, end int) {
	w.wrapped = c.calls && c.costs[0] > 0 && len(c.results) <= 1 // a block with more results would need a type of its own
	w.locals(c)
	copied := c.groupsAt.end
	for _, e := range c.edits {
		at := int(e.at)
		w.copy(copied, at)
		copied = at + int(e.drop)
		switch e.kind {
		case paySegment, payEntry, payHead, payHeadHere:
			w.segment(c, e.kind, c.costs[e.arg])
		case payBytes, payElements, payPages:
			w.call(w.added(payers[e.kind-payBytes].function))
			w.reload()
		case payRef:
			w.call(w.added(referenceFunction))
			w.reload()
		case wrapLoop:
			w.ops(opBlock)
			w.copy(at+1, copied)
			w.ops(opLoop, typeEmpty, opBlock, typeEmpty)
			w.copy(at, copied)
		case unwrapLoop:
			w.ops(opBr, 2)
			w.unwrap()
			w.ops(opEnd)
		case unwrapEntry:
			if w.wrapped {
				w.ops(opEnd, opReturn)
				w.unwrap()
			}
		case nameFunction:
			w.u32(w.function(e.arg))
		case nameLabel:
			w.u32(e.arg)
		case afterCall:
			w.reload()
			if e.arg == ofModule {
				w.ops(opLocalGet)
				w.u32(uint32(w.depth))
				w.global(opGlobalSet, w.depthGlobal())
			}
		case moveMemory:
			w.call(w.added(int(e.arg)))
			w.reload()
		}
	}
	w.copy(copied, end)
	w.local, w.depth = noLocal, noLocal
}

// unwrap ends a loop and a block in it; the block is left if the slice is overdrawn.
func (w *writer) unwrap() {
	w.ops(opEnd)
	w.call(w.added(refillFunction))
	w.reload()
	w.ops(opBr, 0, opEnd, opUnreachable)
}

// locals writes a function's locals. A function with loops gets a local that always has the value of
// the global Slice: the compiler keeps it in a register, and would otherwise load the global in each
// pass, right after storing it. One with calls gets a local for its depth.
func (w *writer) locals(c *scanner) {
	added := 0
	if c.loops {
		w.local = c.locals
		added++
	}
	if c.calls {
		w.depth = c.locals + added
		added++
	}
	w.u32(uint32(c.groups + min(added, 1)))
	w.copy(c.groupsAt.start, c.groupsAt.end)
	if added > 0 {
		w.ops(byte(added), typeI64)
	}
}

// enterDepth adds the function's frame to the depth, if it calls others. At the end of the function
// nothing is subtracted: callers set the global to their own depth after each call.
func (w *writer) enterDepth(frame int64) {
	if w.depth == noLocal {
		return
	}
	w.global(opGlobalGet, w.depthGlobal())
	w.constant(frame)
	w.ops(opI64Add, opLocalTee)
	w.u32(uint32(w.depth))
	w.global(opGlobalSet, w.depthGlobal())
}

// segment pays for a segment. A segment that costs nothing needs no payment and no check: every loop
// and every recursion contains one that costs something.
func (w *writer) segment(c *scanner, kind editKind, cost int64) {
	if kind == payEntry {
		w.reload()
		w.enterDepth(c.frame())
	}
	if cost == 0 {
		if kind == payEntry && c.calls {
			w.checkEntry()
		}
		return
	}
	switch kind {
	case payEntry:
		w.pay(cost)
		switch {
		case w.wrapped: // to branches and results, the innermost block stands for the function
			w.ops(opLoop, typeEmpty, opBlock, typeEmpty)
			w.entryOverdrawn()
			w.ops(opBrIf, 0)
			result := byte(typeEmpty)
			if len(c.results) > 0 {
				result = c.results[0]
			}
			w.ops(opBlock, result)
		case c.calls:
			w.checkEntry()
		}
	case payHead:
		w.leaveOverdrawn(1)
		w.pay(cost)
	case payHeadHere:
		w.pay(cost)
		w.check()
	default:
		w.pay(cost)
	}
}

func (w *writer) leaveOverdrawn(depth uint32) {
	w.readSlice()
	w.constant(0)
	w.ops(opI64LtS, opBrIf)
	w.u32(depth)
}

func (w *writer) global(op byte, index uint32) {
	w.ops(op)
	w.u32(index)
}

func (w *writer) call(function uint32) {
	w.ops(opCall)
	w.u32(function)
}

func (w *writer) constant(v int64) {
	w.ops(opI64Const)
	w.i64(v)
}

// pay subtracts steps from the slice.
func (w *writer) pay(cost int64) {
	w.readSlice()
	w.constant(cost)
	w.ops(opI64Sub)
	if w.local != noLocal {
		w.ops(opLocalTee)
		w.u32(uint32(w.local))
	}
	w.global(opGlobalSet, w.sliceGlobal())
}

func (w *writer) readSlice() {
	if w.local == noLocal {
		w.global(opGlobalGet, w.sliceGlobal())
		return
	}
	w.ops(opLocalGet)
	w.u32(uint32(w.local))
}

// reload reads the global after other code may have changed it.
func (w *writer) reload() {
	if w.local != noLocal {
		w.global(opGlobalGet, w.sliceGlobal())
		w.ops(opLocalSet)
		w.u32(uint32(w.local))
	}
}

// entryOverdrawn checks, at the beginning of a function with calls, whether the slice is overdrawn
// or the stack too deep.
func (w *writer) entryOverdrawn() {
	w.readSlice()
	w.global(opGlobalGet, w.roomGlobal())
	w.ops(opLocalGet)
	w.u32(uint32(w.depth))
	w.ops(opI64Sub, opI64Or)
	w.constant(0)
	w.ops(opI64LtS)
}

// checkEntry calls the host in that case.
func (w *writer) checkEntry() {
	w.entryOverdrawn()
	w.refillIf()
}

// check refills the slice if it is overdrawn.
func (w *writer) check() {
	w.readSlice()
	w.constant(0)
	w.ops(opI64LtS)
	w.refillIf()
}

func (w *writer) refillIf() {
	w.ops(opIf, typeEmpty)
	w.call(w.added(refillFunction))
	w.reload()
	w.ops(opEnd)
}

// refill moves fuel into the overdrawn slice, and calls the host. If there is not enough fuel, it
// leaves the slice overdrawn and traps.
func (w *writer) refill() {
	const left = 0
	local := func(op byte) { w.ops(op, left) }
	w.raw("\x01\x01\x7e") // one i64 local
	w.global(opGlobalGet, w.fuelGlobal())
	w.global(opGlobalGet, w.sliceGlobal())
	w.ops(opI64Add)
	local(opLocalTee)
	w.constant(0)
	w.ops(opI64LtS, opIf, typeEmpty)
	w.constant(0)
	w.global(opGlobalSet, w.fuelGlobal())
	local(opLocalGet)
	w.global(opGlobalSet, w.sliceGlobal())
	w.ops(opUnreachable, opEnd)

	local(opLocalGet)
	w.constant(w.slice)
	local(opLocalGet)
	w.constant(w.slice)
	w.ops(opI64LtS, opSelect)
	w.global(opGlobalSet, w.sliceGlobal())
	local(opLocalGet)
	w.global(opGlobalGet, w.sliceGlobal())
	w.ops(opI64Sub)
	w.global(opGlobalSet, w.fuelGlobal())
	w.call(w.yield())
	w.ops(opEnd)
}

// payer writes a function that pays for its operand and returns it.
func (w *writer) payer(op byte, shift int64) {
	w.raw("\x00") // no locals
	w.payFor(0, op, shift)
	w.ops(opLocalGet, 0, opEnd)
}

// payReference pays for a reference, in steps and in room.
func (w *writer) payReference() {
	w.raw("\x00")
	w.global(opGlobalGet, w.roomGlobal())
	w.constant(reference)
	w.ops(opI64Sub)
	w.global(opGlobalSet, w.roomGlobal())
	w.pay(perReference)
	w.check()
	w.ops(opEnd)
}

// payFor pays for the value of a local.
func (w *writer) payFor(local, op byte, shift int64) {
	w.global(opGlobalGet, w.sliceGlobal())
	w.ops(opLocalGet, local, opI64ExtendU)
	w.constant(shift)
	w.ops(op, opI64Sub)
	w.global(opGlobalSet, w.sliceGlobal())
	w.check()
}

// thunk writes a function that pays for an imported function, calls it unless a parameter is too
// large, and then calls the host.
func (w *writer) thunk(function uint32, t signature, r repeat, b bound) {
	w.raw("\x00")
	w.pay(hostCall)
	for _, p := range b.parameters {
		if p < len(t.params) && t.params[p] == typeI32 && string(t.results) == string(rune(typeI32)) {
			w.ops(opLocalGet, byte(p), opI32Const)
			w.i64(b.most)
			w.ops(opI32GtU, opIf, typeEmpty, opI32Const)
			w.i64(b.errno)
			w.ops(opReturn, opEnd)
		}
	}
	if p := r.parameter; r != (repeat{}) && p < len(t.params) && t.params[p] == typeI32 {
		w.ops(opLocalGet, byte(p))
		w.call(w.added(r.payer))
		w.ops(opDrop)
	}
	w.check()
	for i := range t.params {
		w.ops(opLocalGet)
		w.u32(uint32(i))
	}
	w.call(function)
	w.call(w.yield())
	w.ops(opEnd)
}
