package wasm

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// The sections of a module, by their ids.
const (
	sectionCustom    = 0
	sectionType      = 1
	sectionImport    = 2
	sectionFunction  = 3
	sectionTable     = 4
	sectionMemory    = 5
	sectionGlobal    = 6
	sectionExport    = 7
	sectionStart     = 8
	sectionElement   = 9
	sectionCode      = 10
	sectionData      = 11
	sectionDataCount = 12
)

const magic = "\x00asm\x01\x00\x00\x00"

// look reads a module as far as the host has to know it, and bounds all that
// those after it would believe: every count, every size, and how large a table
// may be. It returns the module less what it does without, which is the custom
// sections, with the tables' limits lowered. What code does is not looked at,
// that is for the validation of the compiler.
func look(module []byte) (*shape, []byte, error) {
	if len(module) < len(magic) || string(module[:len(magic)]) != magic {
		return nil, nil, invalid("it is not WebAssembly 1.0 in the binary format")
	}
	l := &looker{in: cursor{data: module, at: len(magic)}, shape: &shape{exports: map[string]exported{}}}
	out := make([]byte, 0, len(module))
	out = append(out, magic...)
	for l.in.at < len(module) && l.in.fault == "" {
		id := l.in.byte()
		body := l.in.part(l.in.count(MaxModule, "bytes of a section"))
		if l.in.fault != "" || id == sectionCustom {
			continue
		}
		at := body.at
		rewritten := l.section(id, &body)
		if body.fault == "" && body.at != len(body.data) {
			body.refuse("there is more in the section than its count says")
		}
		if body.fault != "" {
			l.in.fault, l.in.at = body.fault, body.at
			break
		}
		if rewritten == nil {
			rewritten = body.data[at:]
		}
		out = append(out, id)
		out = binary.AppendUvarint(out, uint64(len(rewritten)))
		out = append(out, rewritten...)
	}
	if l.in.fault != "" {
		return nil, nil, invalid("at byte %#x: %s", l.in.at, l.in.fault)
	}
	return l.shape, out, nil
}

// looker walks the sections of a module.
type looker struct {
	in    cursor
	shape *shape
	last  int // the rank of the section before
}

// section walks one section. What it returns stands in its place; nil for itself.
func (l *looker) section(id byte, in *cursor) []byte {
	rank := int(id) * 2
	if id == sectionDataCount {
		rank = sectionCode*2 - 1
	}
	if rank <= l.last {
		in.refuse("the sections are out of order")
		return nil
	}
	l.last = rank
	switch id {
	case sectionType:
		in.each(maxItems, "types", l.functionType)
	case sectionImport:
		in.each(maxItems, "imports", l.imported)
	case sectionFunction:
		in.each(maxFunctions, "functions", func(in *cursor) { l.shape.functions = append(l.shape.functions, in.u32()) })
	case sectionTable:
		return l.tables(in)
	case sectionMemory:
		in.each(1, "memories", func(in *cursor) { l.shape.memory = in.limits() })
	case sectionGlobal:
		in.each(maxItems, "globals", func(in *cursor) { in.byte(); in.byte(); in.constant() })
	case sectionExport:
		in.each(maxItems, "exports", l.exported)
	case sectionStart, sectionDataCount:
		in.u32()
	case sectionElement:
		in.each(maxItems, "element segments", elements)
	case sectionCode:
		in.each(maxFunctions, "functions", functionCode)
	case sectionData:
		in.each(maxItems, "data segments", data)
	default:
		in.refuse("there is no section %d", id)
	}
	return nil
}

func (l *looker) functionType(in *cursor) {
	if in.byte() != 0x60 {
		in.refuse("this is no type of a function")
	}
	params := in.take(in.count(maxTypes, "parameters"))
	results := in.take(in.count(maxTypes, "results"))
	l.shape.types = append(l.shape.types, signature{string(params), string(results)})
}

func (l *looker) imported(in *cursor) {
	i := imported{module: in.name(), name: in.name(), kind: in.byte()}
	switch i.kind {
	case kindFunction:
		l.shape.functions = append(l.shape.functions, in.u32())
	case kindTable:
		in.byte()
		in.limits()
	case kindMemory:
		in.limits()
	case kindGlobal:
		in.byte()
		in.byte()
	default:
		in.refuse("nothing of kind %d can be imported", i.kind)
	}
	l.shape.imports = append(l.shape.imports, i)
}

func (l *looker) exported(in *cursor) {
	name, kind, index := in.name(), in.byte(), in.u32()
	if _, twice := l.shape.exports[name]; twice {
		in.refuse("something is exported twice")
	}
	l.shape.exports[name] = exported{kind, index}
}

// tables walks the tables and gives each a limit that a call can afford, so that
// table.grow fails in the guest.
func (l *looker) tables(in *cursor) []byte {
	var out []byte
	n := 0
	in.each(maxTables, "tables", func(in *cursor) {
		n++
		of := in.byte()
		size := in.limits()
		if size.least > maxElements {
			in.refuse("a table has %d elements; it may have %d", size.least, maxElements)
		}
		out = append(out, of, 1) // a maximum is given
		out = binary.AppendUvarint(out, size.least)
		out = binary.AppendUvarint(out, min(size.most, maxElements))
	})
	return append(binary.AppendUvarint(nil, uint64(n)), out...)
}

// elements walks a segment of elements, of which there are eight kinds: bit 0
// says that it is not active, bit 1 that it names its table, or is declarative,
// bit 2 that it holds expressions.
func elements(in *cursor) {
	flags := in.u32()
	if flags > 7 {
		in.refuse("there are no element segments of kind %d", flags)
	}
	if flags&1 == 0 {
		if flags&2 != 0 {
			in.u32() // the table
		}
		in.constant()
	}
	if flags&3 != 0 {
		in.byte() // their type
	}
	if flags&4 != 0 {
		in.each(maxElements, "elements", (*cursor).constant)
	} else {
		in.each(maxElements, "elements", func(in *cursor) { in.u32() })
	}
}

// functionCode walks the code of a function up to its first instruction.
func functionCode(in *cursor) {
	body := in.part(in.count(maxFunction, "bytes of a function"))
	locals := 0
	body.each(maxLocals, "groups of locals", func(body *cursor) {
		locals += body.count(maxLocals, "locals")
		body.byte()
		if locals > maxLocals {
			body.refuse("a function has more than %d locals", maxLocals)
		}
	})
	if body.fault != "" {
		in.fault, in.at = body.fault, body.at
	}
}

// data walks a segment of data.
func data(in *cursor) {
	switch in.u32() {
	case 0:
		in.constant()
	case 1:
	case 2:
		in.u32() // the memory
		in.constant()
	default:
		in.refuse("there are no data segments of this kind")
	}
	in.take(in.count(MaxModule, "bytes of data"))
}

// cursor reads what may be anything. Behind a fault it reads zeros.
type cursor struct {
	data  []byte // to the end of what it may read
	at    int
	fault string // "" while nothing is wrong
}

func (c *cursor) refuse(format string, args ...any) {
	if c.fault == "" {
		c.fault = fmt.Sprintf(format, args...)
	}
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// take returns the next n bytes; nil behind a fault.
func (c *cursor) take(n int) []byte {
	if c.fault == "" && n > len(c.data)-c.at {
		c.refuse("it ends too early")
	}
	if c.fault != "" {
		return nil
	}
	c.at += n
	return c.data[c.at-n : c.at : c.at]
}

// part returns a cursor over the next n bytes, and goes on behind them.
func (c *cursor) part(n int) cursor {
	c.take(n)
	return cursor{data: c.data[:c.at], at: max(c.at-n, 0), fault: c.fault}
}

// u32 reads a LEB128 of 32 bits.
func (c *cursor) u32() uint32 { return uint32(c.leb(32)) }

// leb reads a LEB128 of so many bits, whether it has a sign or not.
func (c *cursor) leb(bits int) uint64 {
	var v uint64
	for shift := 0; shift < bits; shift += 7 {
		b := c.byte()
		v |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return v
		}
	}
	c.refuse("a number is too long")
	return 0
}

// count reads how many there are of something.
func (c *cursor) count(most int, what string) int {
	n := c.u32()
	if int64(n) > int64(most) {
		c.refuse("it has %d %s; it may have %d", n, what, most)
		return 0
	}
	return int(n)
}

// each reads a vector.
func (c *cursor) each(most int, what string, one func(*cursor)) {
	n := c.count(most, what)
	if n > len(c.data)-c.at { // each takes a byte at least
		c.refuse("it ends too early")
	}
	for ; n > 0 && c.fault == ""; n-- {
		one(c)
	}
}

func (c *cursor) name() string {
	const longest = 10_000
	name := string(c.take(c.count(longest, "bytes of a name")))
	if !utf8.ValidString(name) {
		c.refuse("a name is not UTF-8")
	}
	return name
}

// limits reads how large something is and may become.
func (c *cursor) limits() *extent {
	e := &extent{most: 1 << 32}
	switch flags := c.byte(); flags {
	case 0:
		e.least = uint64(c.u32())
	case 1:
		e.least, e.most = uint64(c.u32()), uint64(c.u32())
		if e.least > e.most {
			c.refuse("a minimum is above its maximum")
		}
	default:
		c.refuse("Orla has neither shared nor 64-bit memory (limits of kind %d)", flags)
	}
	return e
}

// constant reads a constant expression.
func (c *cursor) constant() {
	const end = 0x0b
	for c.fault == "" {
		switch op := c.byte(); op {
		case end:
			return
		case 0x41: // i32.const
			c.leb(32)
		case 0x42: // i64.const
			c.leb(64)
		case 0x43: // f32.const
			c.take(4)
		case 0x44: // f64.const
			c.take(8)
		case 0x23, 0xd2: // global.get, ref.func
			c.u32()
		case 0xd0: // ref.null
			c.byte()
		case 0xfd: // v128.const
			if c.u32() != 12 {
				c.refuse("this is no constant")
			}
			c.take(16)
		default:
			c.refuse("instruction %#x cannot be in a constant", op)
		}
	}
}
