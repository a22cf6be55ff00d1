package wasmfuel

// Opcodes that the meter treats specially. For all others it only knows which immediates follow.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32GtU       = 0x4b
	opI32LeU       = 0x4d
	opI64LtS       = 0x53
	opI64GtU       = 0x56
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI64Add       = 0x7c
	opI64Or        = 0x84
	opI64Sub       = 0x7d
	opI64Shl       = 0x86
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad // i64.extend_i32_u
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opMisc         = 0xfc // the first of two bytes
	opVector       = 0xfd // the first of two bytes

	miscMemoryInit = 8
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableFill  = 17

	vectorConst = 0x0c
)

// Types, as they are encoded.
const (
	typeI32       = 0x7f
	typeI64       = 0x7e
	typeV128      = 0x7b
	typeFuncref   = 0x70
	typeExternref = 0x6f
	typeFunction  = 0x60
	typeEmpty     = 0x40 // a block without results
)

// isValueType reports whether b is a type that a value can have.
func isValueType(b byte) bool {
	return b >= 0x7b && b <= typeI32 || isReference(b)
}

func isReference(b byte) bool { return b == typeFuncref || b == typeExternref }

// immediate is the kind of operands that follow an opcode in the code.
type immediate byte

const (
	unknown immediate = iota
	none
	special // the meter decodes it
	globalIndex
	otherIndex // of a table, a data or an element segment: the meter adds none of these
	twoIndices
	indexAndZero
	zero
	twoZeros
	address // alignment and offset
	addressAndLane
	lane
	signed32
	signed64
	bytes4
	bytes8
	bytes16
	referenceType
	oneValueType
)

// immediates has the immediates of each opcode of one byte.
var immediates = [256]immediate{
	opUnreachable: special, opNop: special, opBlock: special, opLoop: special, opIf: special, opElse: special,
	opEnd: special, opBr: special, opBrIf: special, opBrTable: special, opReturn: special,
	opCall: special, opCallIndirect: special,
	0x1a: none, opSelect: none, 0x1c: oneValueType, // drop, select, select with a type
	opLocalGet: special, opLocalSet: special, opLocalTee: special,
	opGlobalGet: globalIndex, opGlobalSet: globalIndex,
	0x25: otherIndex, 0x26: otherIndex, // table.get, table.set
	opMemorySize: zero, opMemoryGrow: special,
	opI32Const: signed32, opI64Const: signed64, opF32Const: bytes4, opF64Const: bytes8,
	opRefNull: referenceType, 0xd1: none, opRefFunc: special, // ref.is_null
	opMisc: special, opVector: special,
}

// immediateOf returns the immediates of an opcode of one byte.
func immediateOf(op byte) immediate {
	switch {
	case op >= 0x28 && op <= 0x3e: // loads and stores
		return address
	case op >= 0x45 && op <= 0xc4: // comparisons, arithmetic, conversions, sign extension
		return none
	}
	return immediates[op]
}

// miscImmediates has the immediates of each opcode after opMisc.
var miscImmediates = [...]immediate{
	none, none, none, none, none, none, none, none, // conversions that saturate
	miscMemoryInit: indexAndZero, 9: otherIndex, // data.drop
	miscMemoryCopy: twoZeros, miscMemoryFill: zero,
	miscTableInit: twoIndices, 13: otherIndex, // elem.drop
	miscTableCopy: twoIndices, miscTableGrow: otherIndex, 16: otherIndex, // table.size
	miscTableFill: otherIndex,
}

// vectorImmediate returns the immediates of an opcode after opVector.
func vectorImmediate(op byte) immediate {
	switch {
	case op <= 0x0b, op == 0x5c, op == 0x5d:
		return address
	case op == vectorConst, op == 0x0d: // a shuffle has sixteen lanes
		return bytes16
	case op >= 0x15 && op <= 0x22:
		return lane
	case op >= 0x54 && op <= 0x5b:
		return addressAndLane
	}
	switch op {
	case 0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6, 0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee:
		return unknown // not assigned in WebAssembly 2.0
	}
	return none
}

// pass reads the immediates of an opcode, unless they are special.
func (r *reader) pass(op byte, what immediate, m *module) {
	switch what {
	case none:
	case otherIndex:
		r.u32() // the runtime checks it; the meter adds none
	case globalIndex:
		r.index("global", m.globals)
	case twoIndices:
		r.u32()
		r.u32()
	case indexAndZero:
		r.u32()
		r.constant("memory", 0)
	case zero:
		r.constant("memory", 0)
	case twoZeros:
		r.constant("memory", 0)
		r.constant("memory", 0)
	case address, addressAndLane:
		r.index("alignment", 5)
		r.u32()
		if what == addressAndLane {
			r.byte()
		}
	case lane:
		r.byte()
	case signed32:
		r.signed(32)
	case signed64:
		r.signed(64)
	case bytes4:
		r.skip(4)
	case bytes8:
		r.skip(8)
	case bytes16:
		r.skip(16)
	case referenceType:
		if at := r.pos; !isReference(r.byte()) {
			r.fail(at, "unknown reference type")
		}
	case oneValueType:
		r.constant("number of types of a select", 1)
		r.valueType()
	case unknown, special:
		r.fail(r.pos-1, "unknown instruction %#x", op)
	}
}

// valueType reads a type that a value can have.
func (r *reader) valueType() {
	at := r.pos
	b := r.byte()
	if !isValueType(b) {
		r.fail(at, "unknown type %#x", b)
	}
	r.vectors = r.vectors || b == typeV128
}
