package wasmfuel

import (
	"encoding/binary"
	"slices"
)

// Costs that depend on an operand: one step for each so many bytes that are moved, one for each
// element of a table, and several for a page of memory.
const (
	bytesShift    = 6 // 64 bytes
	elementsShift = 0
	pagesShift    = 4 // 16 steps
)

// perReference is the additional cost of ref.func, so that the host is called often enough to check
// the room for references.
const perReference = 16

// hostCall is the additional cost of a call of an imported function.
const hostCall = 100

// repeat says which parameter of an imported function counts how often it does something, and which
// payer pays for that. The zero repeat is none.
type repeat struct {
	parameter int
	payer     int
}

// repeats are those of WASI: a buffer or subscription costs as much as a page of memory, and a
// random byte as much as an element of a table.
var repeats = map[string]repeat{
	"wasi_snapshot_preview1.fd_read":     {2, pagesFunction},
	"wasi_snapshot_preview1.fd_pread":    {2, pagesFunction},
	"wasi_snapshot_preview1.fd_write":    {2, pagesFunction},
	"wasi_snapshot_preview1.fd_pwrite":   {2, pagesFunction},
	"wasi_snapshot_preview1.poll_oneoff": {2, pagesFunction},
	"wasi_snapshot_preview1.random_get":  {1, elementsFunction},
}

// bound says which parameters of an imported function must not exceed most, and which WASI error it
// returns if one does. The zero bound is none.
type bound struct {
	parameters []int
	most       int64
	errno      int64
}

// WASI error numbers.
const (
	errnoInvalid     = 28
	errnoNameTooLong = 37
)

const (
	maxPath          = 4096 // as on Linux
	maxSubscriptions = 4096
)

func paths(lengths ...int) bound { return bound{lengths, maxPath, errnoNameTooLong} }

// bounds are those of WASI: its host copies each path, and allocates memory for each subscription,
// before it checks them.
var bounds = map[string]bound{
	"wasi_snapshot_preview1.path_create_directory":   paths(2),
	"wasi_snapshot_preview1.path_filestat_get":       paths(3),
	"wasi_snapshot_preview1.path_filestat_set_times": paths(3),
	"wasi_snapshot_preview1.path_link":               paths(3, 6),
	"wasi_snapshot_preview1.path_open":               paths(3),
	"wasi_snapshot_preview1.path_readlink":           paths(2),
	"wasi_snapshot_preview1.path_remove_directory":   paths(2),
	"wasi_snapshot_preview1.path_rename":             paths(2, 5),
	"wasi_snapshot_preview1.path_symlink":            paths(1, 4),
	"wasi_snapshot_preview1.path_unlink_file":        paths(2),
	"wasi_snapshot_preview1.poll_oneoff":             {[]int{2}, maxSubscriptions, errnoInvalid},
}

// writer writes the new module. Added functions and globals follow those of the module, except the
// import, which increases the index of each defined function by one.
type writer struct {
	m       *module
	out     []byte
	slice   int64
	wrapped bool
	local   int // the local with the value of the global Slice in the current function, or noLocal
	depth   int // the local with the depth of the current function, or noLocal
}

const noLocal = -1

// Added functions, in this order. After them comes one for each large data segment, and a thunk for
// each imported function.
const (
	refillFunction = iota
	bytesFunction
	elementsFunction
	pagesFunction
	referenceFunction
	fillFunction
	copyFunction
	addedFunctions
)

// payers are the functions that pay for an operand.
var payers = [...]struct {
	function int
	op       byte // converts the operand to steps
	shift    int64
}{
	{bytesFunction, opI64ShrU, bytesShift},
	{elementsFunction, opI64ShrU, elementsShift},
	{pagesFunction, opI64Shl, pagesShift},
}

func (w *writer) yield() uint32 { return uint32(len(w.m.imports)) }

// added returns the index of an added function.
func (w *writer) added(i int) uint32 { return uint32(w.m.functions() + 1 + i) }

// function returns the new index of a function of the module. For an imported function that is its
// thunk, which pays for it and calls the host afterwards.
func (w *writer) function(old uint32) uint32 {
	if int(old) < len(w.m.imports) {
		return w.added(addedFunctions + len(w.m.large) + int(old))
	}
	return old + 1
}

// Added types: () -> (), (i32) -> (i32), and (i32, i32, i32) -> ().
func (w *writer) actionType() uint32 { return uint32(len(w.m.types)) }
func (w *writer) payerType() uint32  { return uint32(len(w.m.types) + 1) }
func (w *writer) moverType() uint32  { return uint32(len(w.m.types) + 2) }

// Added globals.
func (w *writer) fuelGlobal() uint32  { return uint32(w.m.globals) }
func (w *writer) sliceGlobal() uint32 { return uint32(w.m.globals + 1) }
func (w *writer) roomGlobal() uint32  { return uint32(w.m.globals + 2) }
func (w *writer) depthGlobal() uint32 { return uint32(w.m.globals + 3) }

// addedGlobals is their number.
const addedGlobals = 4

// roomAtFirst is the value of Room before the host sets it.
const roomAtFirst = 1 << 60

// module writes all of it.
func (w *writer) module() *Error {
	w.out = make([]byte, 0, len(w.m.buf)*2+1024)
	w.raw("\x00asm\x01\x00\x00\x00")
	w.list(typeSection, 3, func() {
		w.raw("\x60\x00\x00" + "\x60\x01\x7f\x01\x7f" + "\x60\x03\x7f\x7f\x7f\x00")
	})
	w.list(importSection, 1, func() {
		w.name(Host)
		w.name(Yield)
		w.raw("\x00")
		w.u32(w.actionType())
	})
	w.list(functionSection, addedFunctions+len(w.m.large)+len(w.m.imports), func() {
		w.u32(w.actionType())
		for range payers {
			w.u32(w.payerType())
		}
		w.u32(w.actionType())
		for range addedFunctions - fillFunction + len(w.m.large) {
			w.u32(w.moverType())
		}
		for _, t := range w.m.imports {
			w.u32(t)
		}
	})
	w.tables()
	w.memory()
	w.list(globalSection, addedGlobals, func() {
		room := int(w.roomGlobal()) - w.m.globals
		for i := range addedGlobals {
			w.ops(typeI64, 1)
			if i == room {
				w.constant(roomAtFirst)
			} else {
				w.constant(0)
			}
			w.ops(opEnd)
		}
	})
	w.exports()
	w.list(elementSection, 0, func() {})
	if at := w.m.section[dataCountSection]; at.start > 0 {
		w.section(dataCountSection, func() { w.copy(at.start, at.end) })
	}
	if err := w.code(); err != nil {
		return err
	}
	w.list(dataSection, 0, func() {})
	return nil
}

func (w *writer) raw(s string)        { w.out = append(w.out, s...) }
func (w *writer) ops(ops ...byte)     { w.out = append(w.out, ops...) }
func (w *writer) copy(start, end int) { w.out = append(w.out, w.m.buf[start:end]...) }

func (w *writer) u32(v uint32) { w.out = binary.AppendUvarint(w.out, uint64(v)) }

func (w *writer) name(s string) {
	w.u32(uint32(len(s)))
	w.raw(s)
}

// i64 writes a signed number.
func (w *writer) i64(v int64) {
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			w.out = append(w.out, b)
			return
		}
		w.out = append(w.out, b|0x80)
	}
}

// sized writes the output of content with its length before it.
func (w *writer) sized(content func()) {
	start := len(w.out)
	content()
	length := len(w.out) - start
	var prefix [binary.MaxVarintLen32]byte
	n := binary.PutUvarint(prefix[:], uint64(length))
	w.out = slices.Insert(w.out, start, prefix[:n]...)
}

func (w *writer) section(id byte, content func()) {
	w.out = append(w.out, id)
	w.sized(content)
}

// list writes a section that is a list: the module's entries, with functions renumbered, and more
// entries after them.
func (w *writer) list(id byte, more int, add func()) {
	if w.m.counts[id]+more == 0 {
		return
	}
	w.section(id, func() {
		w.u32(uint32(w.m.counts[id] + more))
		w.entries(id)
		add()
	})
}

// entries writes the entries of a section of the module, and renumbers the functions in them.
func (w *writer) entries(id byte) {
	at := w.m.section[id]
	r := &reader{buf: w.m.buf, pos: at.start, end: at.end}
	copied := at.start
	rename := func(pos, length int, function uint32) {
		w.copy(copied, pos)
		w.u32(w.function(function))
		copied = pos + length
	}
	switch id {
	case globalSection:
		for range w.m.counts[id] {
			r.skip(2)
			r.expression(w.m, w.m.globals, rename)
		}
	case elementSection:
		for range w.m.counts[id] {
			r.element(w.m, maxTableEntries, rename)
		}
	}
	w.copy(copied, at.end)
}

// tables writes the tables with maximum sizes.
func (w *writer) tables() {
	if len(w.m.tables) == 0 {
		return
	}
	w.section(tableSection, func() {
		w.u32(uint32(len(w.m.tables)))
		for _, t := range w.m.tables {
			w.ops(t.element, 1)
			w.u32(uint32(t.limits.min))
			w.u32(uint32(w.m.mostEntries(t)))
		}
	})
}

// memory writes the memory with a maximum size.
func (w *writer) memory() {
	if w.m.memory == nil {
		return
	}
	w.section(memorySection, func() {
		w.ops(1, 1)
		w.u32(uint32(w.m.memory.min))
		w.u32(uint32(w.m.memory.max))
	})
}

// exports writes the exports, including those that the host needs.
func (w *writer) exports() {
	n := w.m.counts[exportSection]
	more := addedGlobals
	if w.m.start >= 0 {
		more++
	}
	w.section(exportSection, func() {
		w.u32(uint32(n + more))
		r := &reader{buf: w.m.buf, pos: w.m.section[exportSection].start, end: w.m.section[exportSection].end}
		for range n {
			start := r.pos
			r.bytes("a name")
			kind := r.byte()
			w.copy(start, r.pos)
			index := r.u32()
			if kind == exportFunction {
				index = w.function(index)
			}
			w.u32(index)
		}
		export := func(name string, kind byte, index uint32) {
			w.name(name)
			w.ops(kind)
			w.u32(index)
		}
		export(Fuel, exportGlobal, w.fuelGlobal())
		export(Slice, exportGlobal, w.sliceGlobal())
		export(Room, exportGlobal, w.roomGlobal())
		export(Depth, exportGlobal, w.depthGlobal())
		if w.m.start >= 0 {
			export(Start, exportFunction, w.function(uint32(w.m.start)))
		}
	})
}
