package wasmfuel_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// with changes a program.
func with(p program, change func(*program)) []byte {
	change(&p)
	return p.bytes()
}

// truncation is i64.trunc_f32_s of a number.
var truncation = code(op(0x43), "\x00\x00\x00\x00", op(0xae), drop)

// loops is so many loops, each in the one before it.
func loops(n int) string {
	return strings.Repeat(code(loop, empty), n) + strings.Repeat(code(localGet, 0, brIf, 0, end), n) + code(i32Const, 0)
}

var header = "\x00asm\x01\x00\x00\x00"

// hostile are modules that are refused, and a part of why.
var hostile = map[string]struct {
	module []byte
	want   string
}{
	"nothing":                    {nil, "not a WebAssembly module"},
	"another version":            {[]byte("\x00asm\x02\x00\x00\x00"), "not a WebAssembly module"},
	"a component":                {[]byte("\x00asm\x0d\x00\x01\x00"), "not a WebAssembly module"},
	"an unknown section":         {[]byte(header + section(13, "\x00")), "unknown section 13 (at byte 0xa)"},
	"a section twice":            {[]byte(header + section(1, "\x00") + section(1, "\x00")), "out of order"},
	"sections out of order":      {[]byte(header + section(3, "\x00") + section(1, "\x00")), "out of order"},
	"a custom section that lies": {[]byte(header + "\x00\x05\xff\xff\xff\xff\x0f"), "at most"},
	"a section that lies":        {[]byte(header + "\x01\x7f\x00"), "do not fit"},
	"a section with a rest":      {[]byte(header + section(1, "\x00\x00")), "1 bytes too many"},
	"2^32-1 types":               {[]byte(header + section(1, "\xff\xff\xff\xff\x0f")), "at most"},
	"types that do not fit":      {[]byte(header + section(1, "\x90\x4e")), "do not fit"},
	"a count too long":           {[]byte(header + section(1, "\x80\x80\x80\x80\x80\x00")), "more than 32 bits"},
	"a count too large":          {[]byte(header + section(1, "\x80\x80\x80\x80\x10")), "more than 32 bits"},
	"a type of values":           {with(main(code(i32Const, 0)), func(p *program) { p.types[0] = of("\x69", "") }), "unknown type 0x69"},
	"a recursive type":           {with(main(code(i32Const, 0)), func(p *program) { p.types[0] = "\x4e\x00" }), "form of a type"},
	"a memory that is shared":    {with(main(code(i32Const, 0)), func(p *program) { p.memories[0] = "\x03\x01\x02" }), "kind of limits"},
	"a memory of padded limits":  {with(main(code(i32Const, 0)), func(p *program) { p.memories[0] = "\x80\x00\x01" }), "kind of limits 0x80"},
	"an export of a padded kind": {with(main(code(i32Const, 0)), func(p *program) { p.exports = []string{sized("g") + "\x80\x00\x00"} }), "kind of an export 0x80"},
	"two memories":               {with(main(code(i32Const, 0)), func(p *program) { p.memories = []string{"\x00\x01", "\x00\x01"} }), "at most 1"},
	"a memory upside down":       {with(main(code(i32Const, 0)), func(p *program) { p.memories[0] = "\x01\x02\x01" }), "above its maximum"},
	"too much memory":            {with(main(code(i32Const, 0)), func(p *program) { p.memories[0] = "\x00\x81\x20" }), "a memory has a minimum of 4097: at most 4096"},
	"a table of 2^32-1":          {with(main(code(i32Const, 0)), func(p *program) { p.tables = []string{"\x70\x00\xff\xff\xff\xff\x0f"} }), "a table has a minimum"},
	"tables of too much together": {with(main(code(i32Const, 0)), func(p *program) {
		p.tables = []string{"\x70\x00\x80\x80\x30", "\x6f\x00\x80\x80\x30"}
	}), "a table has a minimum"},
	"a table with a value": {with(main(code(i32Const, 0)), func(p *program) { p.tables = []string{"\x40\x00\x70\x00\x01"} }), "unknown type of a table"},
	"an imported memory":   {with(main(code(i32Const, 0)), func(p *program) { p.imports = []string{sized("env") + sized("m") + "\x02\x00\x01"} }), "is not a function"},
	"an imported global":   {with(main(code(i32Const, 0)), func(p *program) { p.imports = []string{sized("env") + sized("m") + "\x03\x7e\x01"} }), "is not a function"},

	"the counter imported":                       {with(main(code(i32Const, 0)), func(p *program) { p.imports = []string{sized("orla:fuel") + sized("yield") + "\x00\x00"} }), "reserved"},
	"the counter exported":                       {with(main(code(i32Const, 0)), func(p *program) { p.exports = []string{export("orla:fuel", 0)} }), "reserved"},
	"the start exported":                         {with(main(code(i32Const, 0)), func(p *program) { p.exports = []string{export("orla:start", 0)} }), "reserved"},
	"the counter read":                           {main(code(globalGet, 0, drop, i32Const, 0)).bytes(), "unknown global 0"},
	"the counter written":                        {main(code(i64Const, 1<<40, globalSet, 1, i32Const, 0)).bytes(), "unknown global 1"},
	"the counter in a part that nothing reaches": {main(code(i32Const, 0, return_, i64Const, 1<<40, globalSet, 1)).bytes(), "unknown global 1"},
	"the counter in a global":                    {with(main(code(i32Const, 0)), func(p *program) { p.globals = []string{"\x7e\x00" + code(globalGet, 0, end)} }), "unknown global 0"},
	"the counter as an offset": {with(main(code(i32Const, 0)), func(p *program) {
		p.data = []string{"\x00" + code(globalGet, 0, end) + sized("x")}
	}), "unknown global 0"},
	"the counter by export":       {with(main(code(i32Const, 0)), func(p *program) { p.exports = []string{sized("g") + "\x03\x00"} }), "unknown global 0"},
	"an added function":           {main(code(localGet, 0, call, 1)).bytes(), "unknown function 1"},
	"an added function by ref":    {main(code(refFunc, 1, drop, i32Const, 0)).bytes(), "unknown function 1"},
	"an added function by export": {with(main(code(i32Const, 0)), func(p *program) { p.exports = []string{export("g", 2)} }), "unknown function 2"},
	"an added function in a table": {with(main(code(i32Const, 0)), func(p *program) {
		p.tables, p.elements = []string{"\x70\x00\x01"}, []string{"\x00" + code(i32Const, 0, end) + "\x01\x01"}
	}), "unknown function 1"},
	"an added function as an element": {with(main(code(i32Const, 0)), func(p *program) {
		p.tables, p.elements = []string{"\x70\x00\x01"}, []string{"\x04" + code(i32Const, 0, end) + "\x01" + code(refFunc, 1, end)}
	}), "unknown function 1"},
	"an added function at the start": {with(main(code(i32Const, 0)), func(p *program) { p.start = "\x01" }), "unknown function 1"},
	"an added type":                  {main(code(localGet, 0, i32Const, 0, callIndirect, 1, 0)).bytes(), "unknown type 1"},
	"an added type of a block":       {main(code(block, 1, end, i32Const, 0)).bytes(), "unknown type 1 of a block"},
	"an added type of a function":    {with(main(code(i32Const, 0)), func(p *program) { p.funcs[0].of = 1 }), "unknown type 1"},
	"a local that is added":          {main(code(loop, empty, i64Const, 1<<40, localSet, 4, end, i32Const, 0)).bytes(), "unknown local 4"},
	"a start that takes something":   {with(main(code(i32Const, 0)), func(p *program) { p.start = "\x00" }), "parameters or results"},

	"an unknown instruction":     {main(code(op(0xff))).bytes(), "unknown instruction 0xff (at byte 0x27)"},
	"a tail call":                {main(code(localGet, 0, op(0x12), 0)).bytes(), "unknown instruction 0x12"},
	"a try":                      {main(code(op(0x1f), empty, 0, end, i32Const, 0)).bytes(), "unknown instruction 0x1f"},
	"an atomic instruction":      {main(code(op(0xfe), 0, 2, 0)).bytes(), "unknown instruction 0xfe"},
	"a relaxed vector":           {main(code(vector, op(0x80), op(2))).bytes(), "second byte of a vector instruction"},
	"an unused vector":           {main(code(vector, op(0xa2), op(1))).bytes(), "unknown instruction 0xa2"},
	"a padded misc instruction":  {main(code(misc, op(0x8b), op(0), 0)).bytes(), "unknown instruction 0xfc 0x8b"},
	"a block of a padded type":   {main(code(block, op(0xc0), op(0x7f), end, i32Const, 0)).bytes(), "unknown type -64"},
	"a second memory":            {main(code(i32Const, 0, memoryGrow, 1)).bytes(), "memory is 0x1"},
	"a far alignment":            {main(code(i32Const, 0, i32Load, 0x45&0x3f|0x40, 0)).bytes(), "unknown alignment"},
	"an i32 of 33 bits":          {main("\x41\x80\x80\x80\x80\x10").bytes(), "more than 32 bits"},
	"an i64 of 65 bits":          {main("\x42\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02").bytes(), "more than 64 bits"},
	"a body that ends too early": {main("\x44\x00").bytes(), "unexpected end"},
	"a body that goes on":        {main(code(i32Const, 0, end, nop)).bytes(), "2 bytes behind the end"},
	"a label too far":            {main(code(br, 1)).bytes(), "unknown label 1"},
	"an else alone":              {main(code(block, empty, else_, end, i32Const, 0)).bytes(), "else without if"},
	"an else twice":              {main(code(i32Const, 0, if_, empty, else_, else_, end, i32Const, 0)).bytes(), "else without if"},
	"too many locals":            {with(main(code(i32Const, 0)), func(p *program) { p.funcs[0].locals = 50_001 }), "more than 50000 locals"},
	"2^32 locals": {with(main(code(i32Const, 0)), func(p *program) {
		p.funcs[0].locals = 0
		p.funcs[0].more = slices.Repeat([]string{"\xff\xff\xff\xff\x0f\x7f"}, 10)
	}), "more than 50000 locals"},
	"a large br_table": {main(code(block, empty, i32Const, 0, brTable) + unsigned(70_000) + strings.Repeat("\x00", 70_001)).bytes(), "at most 65520"},
	"deep blocks":      {main(strings.Repeat("\x02\x40", 5_001)).bytes(), "nested more than 5000 deep"},
	"deep loops with locals": {with(main(strings.Repeat("\x03\x40", 1000)+strings.Repeat("\x0b", 1000)), func(p *program) {
		p.funcs[0].locals = 10_000
	}), "too complex"},
	"loops in loops that take minutes to compile": {with(main(loops(200)), func(p *program) { p.funcs[0].locals = 200 }), "too complex"},
	"modules of loops in loops": {with(main(loops(60)), func(p *program) {
		p.funcs[0].locals = 150
		p.funcs = slices.Repeat(p.funcs, 10)
	}), "the module is too complex"},
	"more blocks than are compiled in time":         {main(strings.Repeat(code(block, empty, end), 25_001) + code(i32Const, 0)).bytes(), "too complex"},
	"more fills than are compiled in time":          {main(strings.Repeat(code(i32Const, 0, i32Const, 0, localGet, 0, misc, memoryFill, 0), 3_126) + code(i32Const, 0)).bytes(), "too complex"},
	"conversions that take gigabytes to compile":    {main(strings.Repeat(truncation, 60_000) + code(i32Const, 0)).bytes(), "too complex"},
	"calls by table that take gigabytes to compile": {main(strings.Repeat(code(localGet, 0, localGet, 0, callIndirect, 0, 0, drop), 35_000) + code(i32Const, 0)).bytes(), "too complex"},
	"branch tables that take gigabytes to compile":  {main(strings.Repeat(code(block, empty, localGet, 0, brTable)+unsigned(65_000)+strings.Repeat("\x00", 65_001)+code(end), 3) + code(i32Const, 0)).bytes(), "too complex"},
	"functions that take gigabytes together": {with(main(strings.Repeat(truncation, 10_000)+code(i32Const, 0)), func(p *program) {
		p.funcs = slices.Repeat(p.funcs, 200)
	}), "the module is too complex"},
	"more branches than are compiled in time":                       {main(code(block, empty) + strings.Repeat(code(localGet, 0, brIf, 0), 25_001) + code(end, i32Const, 0)).bytes(), "too complex"},
	"more branches than are compiled in the time of a small module": {main(code(block, empty) + strings.Repeat(code(localGet, 0, brIf, 0), 8_000) + code(end, i32Const, 0)).bytes(), "the module is too complex"},
	"functions with more branches than are compiled in time": {with(main(code(block, empty)+strings.Repeat(code(localGet, 0, brIf, 0), 20_000)+code(end, i32Const, 0)), func(p *program) {
		p.funcs = slices.Repeat(p.funcs, 3)
	}), "the module is too complex"},
	"functions whose locals take gigabytes together": {with(main(code(i32Const, 0)), func(p *program) {
		p.funcs[0].locals = 40_000
		p.funcs = slices.Repeat(p.funcs, 250)
	}), "the module is too complex"},
	"calls with globals": {with(main(strings.Repeat(code(i32Const, 0, call, 0, drop), 10_000)), func(p *program) {
		p.globals = slices.Repeat([]string{"\x7f\x01" + code(i32Const, 0, end)}, 1000)
	}), "too complex"},
}

// What is not known, and what could reach the meters, is refused with its place.
func TestT37HostileModulesAreRefused(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		test := hostile[name]
		t.Run(name, func(t *testing.T) {
			out, _, err := wasmfuel.Instrument(test.module, wasmfuel.Options{MaxMemory: 256 << 20})
			if known := new(wasmfuel.Error); !errors.As(err, &known) || !strings.Contains(err.Error(), test.want) || out != nil {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// SPEC S2: an access to memory has the weight of what it takes to compile, so that no small module takes gigabytes.
func TestS2AccessesToMemoryAreWeighed(t *testing.T) {
	for name, access := range map[string]string{
		"load":        code(i32Const, 0, i32Load, 2, 0, drop),
		"store":       code(i32Const, 0, i32Const, 0) + "\x36\x02\x00",
		"vector load": code(i32Const, 0) + "\xfd\x00\x00\x00" + code(drop),
		"lane store":  code(i32Const, 0) + "\xfd\x0c" + strings.Repeat("\x00", 16) + "\xfd\x5b\x00\x00\x00",
	} {
		for n, want := range map[int]bool{20_000: true, 80_000: false} {
			_, _, err := wasmfuel.Instrument(main(strings.Repeat(access, n)+code(i32Const, 0)).bytes(), wasmfuel.Options{})
			if refused := err != nil && strings.Contains(err.Error(), "too complex"); refused == want || want && err != nil {
				t.Errorf("%s: %d in a function: %v", name, n, err)
			}
		}
	}
}

// What is put into a module makes none valid that was not: the compiler sees what was wrong.
func TestT37WhatIsInvalidStaysSo(t *testing.T) {
	again := code(i32Const, 0, call, 0, drop) // a function that calls others is wrapped
	for name, body := range map[string]string{
		"too many results":                 code(again, i32Const, 1, i32Const, 2),
		"too few results":                  code(again),
		"a result of another type":         code(again, i64Const, 1),
		"too many results, of a loop":      code(loop, i32, i32Const, 1, i32Const, 2, end),
		"too few results, of a loop":       code(loop, i32, end),
		"a value from outside, in a loop":  code(i32Const, 1, loop, empty, drop, end, i32Const, 1),
		"a branch without a value":         code(again, block, i32, loop, empty, br, 1, end, i32Const, 1, end),
		"a return without a value":         code(again, loop, empty, return_, end, i32Const, 1),
		"a branch out without a value":     code(again, loop, empty, br, 1, end, i32Const, 1),
		"a load of a long":                 code(i64Const, 1, i32Load, 2, 0),
		"a fill by a long":                 code(i32Const, 0, i32Const, 0, i64Const, 1, misc, memoryFill, 0, i32Const, 1),
		"memory.grow by a long":            code(i64Const, 1, memoryGrow, 0),
		"memory.grow by nothing":           code(memoryGrow, 0),
		"a value too many behind a branch": code(block, empty, br, 0, end, again, i32Const, 1, i32Const, 1),
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			module := main(body).bytes()
			metered, _, err := wasmfuel.Instrument(module, wasmfuel.Options{})
			if err != nil {
				return // the earlier the better
			}
			for kind, module := range map[string][]byte{"plain": module, "metered": metered} {
				if _, err := m.CompileModule(t.Context(), module); err == nil {
					t.Errorf("it is valid when it is %s", kind)
				}
			}
		})
	}
}

// Every beginning of a module, and each byte changed, is refused or still paid for: none
// takes the parser down.
func TestDamagedModules(t *testing.T) {
	p := withImport(code(loop, empty, localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end, i32Const, 0))
	p.tables, p.globals = []string{"\x70\x00\x01"}, []string{"\x7f\x01" + code(i32Const, 0, end)}
	p.elements, p.data = []string{"\x00" + code(i32Const, 0, end) + "\x01\x00"}, []string{"\x00" + code(i32Const, 0, end) + sized("data")}
	module := p.bytes()
	for i := range module {
		_, _, _ = wasmfuel.Instrument(module[:i], wasmfuel.Options{})
		for b := range 256 {
			damaged := bytes.Clone(module)
			damaged[i] = byte(b)
			_, _, _ = wasmfuel.Instrument(damaged, wasmfuel.Options{})
		}
	}
}

// What a module may grow to, it may no further.
func TestT37MemoryAndTablesGrowNoFurther(t *testing.T) {
	// SPEC-TOOLS 3.7: memory above the limit fails in the guest, a declared minimum above it is refused.
	m := newMachine(t)
	opts := wasmfuel.Options{MaxMemory: 3<<16 + 1}
	for arg, want := range map[uint64]uint32{0: 2, 1: 2, 2: 1<<32 - 1} {
		if got := m.run(t, main(code(localGet, 0, memoryGrow, 0)).bytes(), opts, plenty, arg); uint32(got.value[0]) != want {
			t.Errorf("growing two pages by %d where there are three: %d, want %d", arg, got.value[0], want)
		}
	}
	grow := with(main(code(refNull, funcref, localGet, 0, misc, tableGrow, 0)), func(p *program) { p.tables = []string{"\x70\x00\x01", "\x70\x00\x01"} })
	for arg, want := range map[uint64]uint32{1: 1, 1<<19 - 1: 1, 1 << 19: 1<<32 - 1} {
		if got := m.run(t, grow, opts, plenty, arg); uint32(got.value[0]) != want {
			t.Errorf("growing one of two tables by %d: %d, want %d", arg, got.value[0], want)
		}
	}
}

// A large module takes no more than a few times its size.
func TestLargeModule(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it changes a module of many megabytes")
	}
	body := strings.Repeat(code(localGet, 0, if_, empty, nop, end), 900)
	p := main(body + code(i32Const, 0))
	p.funcs = slices.Repeat(p.funcs, 1100)
	module := p.bytes()
	out, _, err := wasmfuel.Instrument(module, wasmfuel.Options{})
	if err != nil || len(out) > 5*len(module) {
		t.Errorf("%d bytes became %d: %v", len(module), len(out), err)
	}
}

// FuzzInstrument checks, of any bytes, that what comes out is a module exactly if it came in
// as one, and that both do the same.
func FuzzInstrument(f *testing.F) {
	for _, p := range numeric {
		f.Add(p.program.bytes())
	}
	for _, h := range hostile {
		if len(h.module) < 1000 {
			f.Add(h.module)
		}
	}
	for _, p := range []program{
		withImport(code(localGet, 0, i32Const, 2, call, 0, i32Sub)),
		main(code(block, empty, block, empty, localGet, 0, brTable, 1, 0, 1, end, i32Const, 10, return_, end, i32Const, 20)),
		main(code(i32Const, 0, i32Const, 1, localGet, 0, misc, memoryFill, 0, i32Const, 0)),
		main(code(vector, op(0x0c), strings.Repeat("\x01", 16), vector, op(0x80), op(1), vector, op(0x15), 0)),
	} {
		f.Add(p.bytes())
	}
	ctx := f.Context()
	config := wazero.NewRuntimeConfig().WithMemoryLimitPages(64)
	f.Fuzz(func(t *testing.T, module []byte) {
		if len(module) > 1<<16 || bytes.Contains(module, []byte("\x04name")) {
			t.Skip("long enough, or with names, which are left out")
		}
		metered, _, err := wasmfuel.Instrument(module, wasmfuel.Options{MaxMemory: 64 << 16, Slice: 1000})
		if err != nil {
			return // the runtime is not asked: it makes room for 2^32 functions if it is told of them
		}
		r := wazero.NewRuntimeWithConfig(ctx, config)
		defer r.Close(ctx) //nolint:errcheck // it is in memory
		before, errBefore := r.CompileModule(ctx, module)
		after, errAfter := r.CompileModule(ctx, metered)
		if errBefore != nil && strings.Contains(errBefore.Error(), "custom") {
			return // it is left out
		}
		if (errBefore == nil) != (errAfter == nil) {
			t.Fatalf("before: %v; after: %v", errBefore, errAfter)
		}
		if errBefore != nil || len(before.ImportedFunctions()) > 0 {
			return
		}
		same(t, r, before, after)
	})
}
