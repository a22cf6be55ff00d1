package wasm_test

import (
	"encoding/binary"
	"slices"
)

// The types of values.
const (
	i32 = 0x7f
	i64 = 0x7e
)

// Instructions, as far as the tests have them.
const (
	unreachable  = 0x00
	loop         = 0x03 // with a type: empty is 0x40
	empty        = 0x40
	ifThen       = 0x04
	orElse       = 0x05
	end          = 0x0b
	branch       = 0x0c
	branchIf     = 0x0d
	returns      = 0x0f
	call         = 0x10
	drop         = 0x1a
	localGet     = 0x20
	localSet     = 0x21
	localTee     = 0x22
	globalGet    = 0x23
	globalSet    = 0x24
	load         = 0x28 // with alignment and offset
	store        = 0x36
	memoryGrow   = 0x40
	i32Const     = 0x41
	i64Const     = 0x42
	i32Eqz       = 0x45
	i32Add       = 0x6a
	i32Sub       = 0x6b
	i64ExtendU   = 0xad
	i64Shl       = 0x86
	i64Or        = 0x84
	divideSigned = 0x6d
	refNull      = 0xd0
	refFunc      = 0xd2
	funcref      = 0x70
)

// assembly is a module to be. Functions are numbered from the imports on.
type assembly struct {
	types    []funcType
	imports  []funcImport
	funcs    []function
	tables   [][]byte // what stands for each in the section
	memory   []byte   // limits; nil for none
	globals  []byte   // whole entries
	nGlobal  int
	exports  []export
	elements []byte // the section
	start    int    // the start function, from 1; 0 for none
	data     string
	extra    []byte // sections as they are, at the end
}

type funcType struct{ params, results []byte }

type funcImport struct {
	module, name string
	kind         byte
	desc         []byte
}

type function struct {
	of     int
	locals []byte
	body   []byte // without its end
}

type export struct {
	name  string
	kind  byte
	index int
}

// number is a LEB128, with a sign or without.
func number(n int64) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func count(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func text(s string) []byte { return append(count(len(s)), s...) }

func list(items ...[]byte) []byte { return append(count(len(items)), slices.Concat(items...)...) }

func section(id byte, content []byte) []byte {
	return slices.Concat([]byte{id}, count(len(content)), content)
}

// code joins instructions: a byte is one, an int a number behind it.
func code(parts ...any) []byte {
	var out []byte
	for _, part := range parts {
		switch p := part.(type) {
		case int: // an untyped constant of an instruction
			out = append(out, byte(p))
		case int64:
			out = append(out, number(p)...)
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

func (a assembly) bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	var types, imports, funcs, codes, exports [][]byte
	for _, t := range a.types {
		types = append(types, slices.Concat([]byte{0x60}, count(len(t.params)), t.params, count(len(t.results)), t.results))
	}
	for _, i := range a.imports {
		imports = append(imports, slices.Concat(text(i.module), text(i.name), []byte{i.kind}, i.desc))
	}
	for _, f := range a.funcs {
		funcs = append(funcs, count(f.of))
		var locals [][]byte
		for _, l := range f.locals {
			locals = append(locals, []byte{1, l})
		}
		body := slices.Concat(list(locals...), f.body, []byte{end})
		codes = append(codes, slices.Concat(count(len(body)), body))
	}
	for _, e := range a.exports {
		exports = append(exports, slices.Concat(text(e.name), []byte{e.kind}, count(e.index)))
	}
	out = append(out, section(1, list(types...))...)
	out = append(out, section(2, list(imports...))...)
	out = append(out, section(3, list(funcs...))...)
	if a.tables != nil {
		out = append(out, section(4, list(a.tables...))...)
	}
	if a.memory != nil {
		out = append(out, section(5, list(a.memory))...)
	}
	if a.nGlobal > 0 {
		out = append(out, section(6, slices.Concat(count(a.nGlobal), a.globals))...)
	}
	out = append(out, section(7, list(exports...))...)
	if a.start > 0 {
		out = append(out, section(8, count(a.start-1))...)
	}
	if a.elements != nil {
		out = append(out, section(9, a.elements)...)
	}
	out = append(out, section(10, list(codes...))...)
	if a.data != "" {
		out = append(out, section(11, list(slices.Concat(code(0, i32Const, int64(0), end), text(a.data))))...)
	}
	return append(out, a.extra...)
}

// buffered is a module whose run is given a place in memory and returns one: body
// has two i32 locals for these, and leaves an i64. Its memory is two pages, and
// allocate returns 1024.
func buffered(body ...any) assembly {
	return assembly{
		types:   []funcType{{[]byte{i32}, []byte{i32}}, {[]byte{i32, i32}, []byte{i64}}, {}},
		funcs:   []function{{of: 0, body: code(i32Const, int64(1024))}, {of: 1, locals: []byte{i32, i32}, body: code(body...)}},
		memory:  []byte{0, 2},
		exports: []export{{"memory", 2, 0}, {"allocate", 0, 0}, {"run", 0, 1}},
	}
}

// answering is code that makes the answer of the first so many bytes of memory.
func answering(at, length int64) []byte { return code(i64Const, at<<32|length) }

// echoing is code that makes the answer of the input.
var echoing = code(localGet, 0, i64ExtendU, i64Const, int64(32), i64Shl, localGet, 1, i64ExtendU, i64Or)
