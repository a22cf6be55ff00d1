package wasmfuel_test

import (
	"bytes"
	"encoding/binary"
)

// The instructions that tests are written in, and the types.
const (
	unreachable  op = 0x00
	nop          op = 0x01
	block        op = 0x02
	loop         op = 0x03
	if_          op = 0x04
	else_        op = 0x05
	end          op = 0x0b
	br           op = 0x0c
	brIf         op = 0x0d
	brTable      op = 0x0e
	return_      op = 0x0f
	call         op = 0x10
	callIndirect op = 0x11
	drop         op = 0x1a
	localGet     op = 0x20
	localSet     op = 0x21
	localTee     op = 0x22
	globalGet    op = 0x23
	globalSet    op = 0x24
	i32Load      op = 0x28
	i32Store     op = 0x36
	i32Store8    op = 0x3a
	memoryGrow   op = 0x40
	i32Const     op = 0x41
	i64Const     op = 0x42
	i32Eqz       op = 0x45
	i32LtS       op = 0x48
	i32LtU       op = 0x49
	i32Add       op = 0x6a
	i32Sub       op = 0x6b
	i32Mul       op = 0x6c
	i32DivS      op = 0x6d
	i32Xor       op = 0x73
	i32ShrU      op = 0x76
	refNull      op = 0xd0
	refFunc      op = 0xd2
	misc         op = 0xfc // and its own opcode
	vector       op = 0xfd // the same

	memoryInit op = 8
	memoryCopy op = 10
	memoryFill op = 11
	tableInit  op = 12
	tableCopy  op = 14
	tableGrow  op = 15
	tableFill  op = 17

	i32     op = 0x7f
	i64     op = 0x7e
	funcref op = 0x70
	empty   op = 0x40
)

type op byte

// code assembles: an op is a byte, an int a signed LEB128, which an index below 64 is
// too, a string itself.
func code(parts ...any) string {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case op:
			out = append(out, byte(p))
		case int:
			out = append(out, signed(int64(p))...)
		case string:
			out = append(out, p...)
		default:
			panic(p)
		}
	}
	return string(out)
}

func signed(v int64) []byte {
	var out []byte
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func unsigned(v int) string { return string(binary.AppendUvarint(nil, uint64(v))) }

func sized(s string) string { return unsigned(len(s)) + s }

// of is a function type.
func of(params, results string) string { return "\x60" + sized(params) + sized(results) }

// function is a function that is defined.
type function struct {
	of     int      // its type
	locals int      // i32, besides the parameters
	more   []string // groups of locals in place of that
	code   string   // without the end
}

func (f function) body() string {
	groups := f.more
	if f.locals > 0 {
		groups = []string{unsigned(f.locals) + "\x7f"}
	}
	s := unsigned(len(groups))
	for _, g := range groups {
		s += g
	}
	return sized(s + f.code + "\x0b")
}

// program is a module to be. All but start are the entries of its sections.
type program struct {
	types    []string
	imports  []string
	funcs    []function
	tables   []string
	memories []string
	globals  []string
	exports  []string
	start    string
	elements []string
	count    string // the content of the section that counts data segments
	data     []string
}

// export is an entry of the exports: a function by default.
func export(name string, index int) string { return sized(name) + "\x00" + unsigned(index) }

func section(id byte, content string) string { return string(id) + sized(content) }

func (p program) bytes() []byte {
	var out bytes.Buffer
	out.WriteString("\x00asm\x01\x00\x00\x00")
	list := func(id byte, entries []string) {
		if len(entries) == 0 {
			return
		}
		content := unsigned(len(entries))
		for _, e := range entries {
			content += e
		}
		out.WriteString(section(id, content))
	}
	var types, bodies []string
	for _, f := range p.funcs {
		types, bodies = append(types, unsigned(f.of)), append(bodies, f.body())
	}
	list(1, p.types)
	list(2, p.imports)
	list(3, types)
	list(4, p.tables)
	list(5, p.memories)
	list(6, p.globals)
	list(7, p.exports)
	if p.start != "" {
		out.WriteString(section(8, p.start))
	}
	list(9, p.elements)
	if p.count != "" {
		out.WriteString(section(12, p.count))
	}
	list(10, bodies)
	list(11, p.data)
	return out.Bytes()
}

// main is a module whose one function, of one parameter and one result, is exported as "f".
func main(body string) program {
	return program{
		types:    []string{of("\x7f", "\x7f")},
		funcs:    []function{{locals: 3, code: body}},
		memories: []string{"\x00\x02"},
		exports:  []string{export("f", 0)},
	}
}
