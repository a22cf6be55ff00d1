package wasmfuel

import "encoding/binary"

// An instruction that moves memory becomes a call of an added function: native code cannot be
// stopped, and one instruction may move 4 GiB. The function pays for all of it, and moves it in
// pieces, between which it calls the host. If it traps, it does so before anything is written, like
// the instruction.

// piece is how many bytes are moved at once: roughly 50 microseconds, including page faults. It is a
// multiple of the bytes that one step moves.
const piece = 256 << 10

// The parameters of the functions, in the order of the instructions' operands.
const (
	to     = 0
	from   = 1 // for memory.fill, the byte
	length = 2
)

// fill is memory.fill.
func (w *writer) fill() {
	w.mover(func() {
		w.beyondMemory(to)
		w.pieces(func() {
			w.onePiece(opMisc, miscMemoryFill, 0)
			w.advance(to)
			w.shorten()
		})
	}, opMisc, miscMemoryFill, 0)
}

// copyMemory is memory.copy. If the ranges overlap, it copies in the direction that preserves the
// source.
func (w *writer) copyMemory() {
	instruction := []byte{opMisc, miscMemoryCopy, 0, 0}
	w.mover(func() {
		w.beyondMemory(to)
		w.beyondMemory(from)
		w.ops(opLocalGet, to, opLocalGet, from, opI32GtU, opIf, typeEmpty)
		w.pieces(func() { // from the end
			w.shorten()
			for _, start := range []byte{to, from} {
				w.ops(opLocalGet, start, opLocalGet, length, opI32Add)
			}
			w.pieceLength()
			w.ops(instruction...)
		})
		w.ops(opElse)
		w.pieces(func() {
			w.onePiece(instruction...)
			w.advance(to)
			w.advance(from)
			w.shorten()
		})
		w.ops(opEnd)
	}, instruction...)
}

// initialize is memory.init for a large segment. After data.drop, the first piece traps.
func (w *writer) initialize(l large) {
	instruction := append([]byte{opMisc, miscMemoryInit}, binary.AppendUvarint(nil, uint64(l.index))...)
	instruction = append(instruction, 0)
	w.mover(func() {
		w.beyondMemory(to)
		w.beyond(from, func() { w.constant(l.length) })
		w.pieces(func() {
			w.onePiece(instruction...)
			w.advance(to)
			w.advance(from)
			w.shorten()
		})
	}, instruction...)
}

// mover writes a function that pays, moves everything but the last piece by inPieces if it is larger
// than a piece, and ends with the instruction itself. A branch out of inPieces skips them.
func (w *writer) mover(inPieces func(), instruction ...byte) {
	w.raw("\x00")          // no locals
	if w.m.memory == nil { // the function is never called
		w.ops(opEnd)
		return
	}
	w.payFor(length, opI64ShrU, bytesShift)
	w.ops(opBlock, typeEmpty, opLocalGet, length)
	w.pieceLength()
	w.ops(opI32LeU, opBrIf, 0)
	inPieces()
	w.ops(opEnd)
	w.ops(opLocalGet, to, opLocalGet, from, opLocalGet, length)
	w.ops(instruction...)
	w.ops(opEnd)
}

// beyondMemory leaves the block if the range that begins at a local ends outside the memory.
func (w *writer) beyondMemory(start byte) {
	w.beyond(start, func() {
		const pageShift = 16
		w.ops(opMemorySize, 0, opI64ExtendU)
		w.constant(pageShift)
		w.ops(opI64Shl)
	})
}

func (w *writer) beyond(start byte, size func()) {
	w.ops(opLocalGet, start, opI64ExtendU, opLocalGet, length, opI64ExtendU, opI64Add)
	size()
	w.ops(opI64GtU, opBrIf, 0)
}

// pieces repeats move while more than one piece is left.
func (w *writer) pieces(move func()) {
	w.ops(opLoop, typeEmpty)
	move()
	w.call(w.yield())
	w.ops(opLocalGet, length)
	w.pieceLength()
	w.ops(opI32GtU, opBrIf, 0, opEnd)
}

// onePiece executes the instruction for one piece.
func (w *writer) onePiece(instruction ...byte) {
	w.ops(opLocalGet, to, opLocalGet, from)
	w.pieceLength()
	w.ops(instruction...)
}

func (w *writer) advance(local byte) { w.addPiece(local, opI32Add) }
func (w *writer) shorten()           { w.addPiece(length, opI32Sub) }

func (w *writer) addPiece(local, op byte) {
	w.ops(opLocalGet, local)
	w.pieceLength()
	w.ops(op, opLocalSet, local)
}

func (w *writer) pieceLength() {
	w.ops(opI32Const)
	w.i64(piece)
}
