package wasmfuel

import (
	"encoding/binary"
	"slices"
)

// What work costs that an operand decides: a unit for each so many bytes that are moved, for
// each element of a table, and so many for a page of memory.
const (
	bytesShift    = 6 // 64 bytes
	elementsShift = 0
	pagesShift    = 4 // 16 units
)

// perReference is what ref.func costs more than another instruction: the host is asked often
// enough, while references are made, whether there is room for them.
const perReference = 16

// hostCall is what a call of an imported function costs more than another.
const hostCall = 100

// repeat says which parameter of an imported function tells how often it does
// something, and which of the payers takes what that costs. The zero repeat is none.
type repeat struct {
	parameter int
	payer     int
}

// repeats are those of WASI: its buffers and subscriptions weigh as much as
// a page of memory, and a random byte what an element of a table does.
var repeats = map[string]repeat{
	"wasi_snapshot_preview1.fd_read":     {2, pagesFunction},
	"wasi_snapshot_preview1.fd_pread":    {2, pagesFunction},
	"wasi_snapshot_preview1.fd_write":    {2, pagesFunction},
	"wasi_snapshot_preview1.fd_pwrite":   {2, pagesFunction},
	"wasi_snapshot_preview1.poll_oneoff": {2, pagesFunction},
	"wasi_snapshot_preview1.random_get":  {1, elementsFunction},
}

// bound says which parameters of an imported function may be no larger than most, and what it
// returns where one is: of the numbers of WASI's errors. The zero bound is none.
type bound struct {
	parameters []int
	most       int64
	errno      int64
}

// Errors of WASI.
const (
	errnoInvalid     = 28
	errnoNameTooLong = 37
)

const (
	maxPath          = 4096 // as on Linux
	maxSubscriptions = 4096
)

func paths(lengths ...int) bound { return bound{lengths, maxPath, errnoNameTooLong} }

// bounds are those of WASI: its host copies each path, and keeps something for each subscription,
// before it looks at what they are for.
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

// writer writes the new module. Functions and globals that are added stand behind those of
// the module, but for the import, which moves all defined functions up by one.
type writer struct {
	m       *module
	out     []byte
	slice   int64
	wrapped bool
	local   int // the local that has the value of the global Slice in the function that is written, or noLocal
	depth   int // the local that has the depth of that function, or noLocal
}

const noLocal = -1

// Functions that are added behind those of the module, in this order. Behind these stand one
// for each large data segment, and a thunk for each imported function.
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

// payers are the functions that take what an operand costs.
var payers = [...]struct {
	function int
	op       byte // how the operand becomes units
	shift    int64
}{
	{bytesFunction, opI64ShrU, bytesShift},
	{elementsFunction, opI64ShrU, elementsShift},
	{pagesFunction, opI64Shl, pagesShift},
}

func (w *writer) yield() uint32 { return uint32(len(w.m.imports)) }

// added is the index of a function that is added.
func (w *writer) added(i int) uint32 { return uint32(w.m.functions() + 1 + i) }

// function is what a function of the module is called now. In place of one that is
// imported stands its thunk, which pays for it and looks afterwards whether the
// call is still wanted.
func (w *writer) function(old uint32) uint32 {
	if int(old) < len(w.m.imports) {
		return w.added(addedFunctions + len(w.m.large) + int(old))
	}
	return old + 1
}

// Types that are added: () -> (), (i32) -> (i32), and (i32, i32, i32) -> ().
func (w *writer) actionType() uint32 { return uint32(len(w.m.types)) }
func (w *writer) payerType() uint32  { return uint32(len(w.m.types) + 1) }
func (w *writer) moverType() uint32  { return uint32(len(w.m.types) + 2) }

// Globals that are added.
func (w *writer) fuelGlobal() uint32  { return uint32(w.m.globals) }
func (w *writer) sliceGlobal() uint32 { return uint32(w.m.globals + 1) }
func (w *writer) roomGlobal() uint32  { return uint32(w.m.globals + 2) }
func (w *writer) depthGlobal() uint32 { return uint32(w.m.globals + 3) }

// addedGlobals is how many there are.
const addedGlobals = 4

// roomAtFirst is what Room is before the host sets it.
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

// sized writes what content writes, behind its length.
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

// list writes a section that is a list: what the module has, with its functions renamed, and
// more entries behind.
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

// entries writes the entries of a section of the module, in which functions may be named.
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

// tables writes the tables, with maxima.
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

// memory writes the memory, with a maximum.
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

// exports writes the exports, and what the host needs besides.
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
