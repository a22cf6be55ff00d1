package wasmfuel

// code writes the bodies of the module's functions with what they pay, and those of
// the functions that are added.
func (w *writer) code() *Error {
	at := w.m.section[codeSection]
	r := &reader{buf: w.m.buf, pos: at.start, end: at.end}
	c := &scanner{m: w.m}
	var err *Error
	w.section(codeSection, func() {
		w.u32(uint32(len(w.m.defined) + addedFunctions + len(w.m.imports)))
		for i := range w.m.defined {
			size := int(r.u32())
			start, end := r.pos, r.pos+size
			r.skip(size)
			if err = c.scan(start, end, len(w.m.typeOf(uint32(len(w.m.imports)+i)).params)); err != nil {
				return
			}
			w.sized(func() { w.body(c, start, end) })
		}
		w.sized(w.refill)
		for _, p := range payers {
			w.sized(func() { w.payer(p.op, p.shift) })
		}
		for i, t := range w.m.imports {
			w.sized(func() { w.thunk(uint32(i), w.m.types[t]) })
		}
	})
	return err
}

// body copies a function's body with the edits that were found for it.
func (w *writer) body(c *scanner, start, end int) {
	copied := start
	for _, e := range c.edits {
		w.copy(copied, int(e.at))
		copied = int(e.at) + int(e.drop)
		switch e.kind {
		case paySegment, checkSegment:
			if cost := c.costs[e.arg]; cost > 0 {
				w.pay(cost)
				if e.kind == checkSegment {
					w.check()
				}
			}
		case nameFunction:
			w.u32(w.function(e.arg))
		case payBytes, payElements, payPages:
			w.call(w.added(payers[e.kind-payBytes].function))
		}
	}
	w.copy(copied, end)
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

// pay takes so many units from the slice.
func (w *writer) pay(cost int64) {
	w.global(opGlobalGet, w.sliceGlobal())
	w.constant(cost)
	w.ops(opI64Sub)
	w.global(opGlobalSet, w.sliceGlobal())
}

// check has the slice filled again if it is overdrawn.
func (w *writer) check() {
	w.global(opGlobalGet, w.sliceGlobal())
	w.constant(0)
	w.ops(opI64LtS, opIf, typeEmpty)
	w.call(w.added(refillFunction))
	w.ops(opEnd)
}

// refill moves fuel into the slice, which is overdrawn, and asks the host whether to go on.
// If there is not that much it leaves the debt in the slice and traps.
func (w *writer) refill() {
	const left = 0
	local := func(op byte) { w.ops(op, left) }
	w.raw("\x01\x01\x7e") // one local, i64
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

// payer takes what its operand costs, and returns the operand.
func (w *writer) payer(op byte, shift int64) {
	w.raw("\x00") // no locals
	w.global(opGlobalGet, w.sliceGlobal())
	w.ops(opLocalGet, 0, opI64ExtendU)
	w.constant(shift)
	w.ops(op, opI64Sub)
	w.global(opGlobalSet, w.sliceGlobal())
	w.check()
	w.ops(opLocalGet, 0, opEnd)
}

// thunk pays for an imported function, calls it, and asks the host whether to go on.
func (w *writer) thunk(function uint32, t signature) {
	w.raw("\x00")
	w.pay(hostCall)
	w.check()
	for i := range t.params {
		w.ops(opLocalGet)
		w.u32(uint32(i))
	}
	w.call(function)
	w.call(w.yield())
	w.ops(opEnd)
}
