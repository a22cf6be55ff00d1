package wasmfuel_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// machine runs modules.
type machine struct {
	wazero.Runtime
	yields int
	host   int // calls of env.host
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{Runtime: wazero.NewRuntime(t.Context())}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	builder := m.NewHostModuleBuilder(wasmfuel.Host)
	builder.NewFunctionBuilder().WithFunc(func() { m.yields++ }).Export(wasmfuel.Yield)
	if _, err := builder.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	env := m.NewHostModuleBuilder("env")
	env.NewFunctionBuilder().WithFunc(func(a, b uint32) (uint32, uint32) { m.host++; return b, a }).Export("host")
	if _, err := env.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	wasi := m.NewHostModuleBuilder("wasi_snapshot_preview1")
	wasi.NewFunctionBuilder().WithFunc(func(_, _, _, _ uint32) uint32 { return 0 }).Export("fd_write")
	wasi.NewFunctionBuilder().WithFunc(func(_, _ uint32) uint32 { return 0 }).Export("random_get")
	wasi.NewFunctionBuilder().WithFunc(func(_, _, _ uint64) {}).Export("fd_read") // of another type than it should be
	if _, err := wasi.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// result is what a run came to.
type result struct {
	value     []uint64
	steps     int64 // what it used
	exhausted bool
	err       error
}

// run instruments a module and calls its function f with args, after its start function,
// with so many steps.
func (m *machine) run(t testing.TB, module []byte, opts wasmfuel.Options, steps int64, args ...uint64) result {
	t.Helper()
	metered, _, err := wasmfuel.Instrument(module, opts)
	if err != nil {
		t.Fatal(err)
	}
	i, err := m.InstantiateWithConfig(t.Context(), metered, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close(t.Context()) //nolint:errcheck // it is in memory
	fuel := i.ExportedGlobal(wasmfuel.Fuel).(api.MutableGlobal)
	slice := i.ExportedGlobal(wasmfuel.Slice)
	fuel.Set(uint64(steps))
	var got result
	if start := i.ExportedFunction(wasmfuel.Start); start != nil {
		_, got.err = start.Call(t.Context())
	}
	if got.err == nil {
		got.value, got.err = i.ExportedFunction("f").Call(t.Context(), args...)
	}
	left := int64(fuel.Get()) + int64(slice.Get())
	got.steps, got.exhausted = steps-left, left < 0
	return got
}

const plenty = 1 << 40

// withImport is a program whose function 0 is env.host, and function 1 is f.
func withImport(body string) program {
	p := main(body)
	p.types = append(p.types, of("\x7f\x7f", "\x7f\x7f"))
	p.imports = []string{sized("env") + sized("host") + "\x00\x01"}
	p.exports = []string{export("f", 1)}
	return p
}

// wasiCalling is a program whose function 0 is of WASI.
func wasiCalling(name, of, body string) program {
	p := main(body)
	p.types = append(p.types, of)
	p.imports = []string{sized("wasi_snapshot_preview1") + sized(name) + "\x00\x01"}
	p.exports = []string{export("f", 1)}
	return p
}

// Each case is counted by a person, from the rule in the package comment.
func TestT37FuelIsCountedAsWritten(t *testing.T) {
	// SPEC-TOOLS 3.7: fuel ends an endless loop.
	loopTimes := code(loop, empty, localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end) // 5 each time
	tests := map[string]struct {
		program program
		arg     uint64
		want    int64
		value   uint64
	}{
		"one instruction":   {main(code(i32Const, 7)), 0, 1, 7},
		"a straight line":   {main(code(i32Const, 1, i32Const, 2, i32Add)), 0, 3, 3},
		"nop and block":     {main(code(nop, block, empty, nop, end, i32Const, 7)), 0, 1, 7},
		"drop is a step":    {main(code(i32Const, 1, drop, i32Const, 7)), 0, 3, 7},
		"if":                {main(code(localGet, 0, if_, i32, i32Const, 5, else_, i32Const, 2, i32Const, 3, i32Add, end)), 1, 2 + 1, 5},
		"else":              {main(code(localGet, 0, if_, i32, i32Const, 5, else_, i32Const, 2, i32Const, 3, i32Add, end)), 0, 2 + 3, 5},
		"behind an if":      {main(code(localGet, 0, if_, empty, i32Const, 5, localSet, 1, end, localGet, 1)), 0, 2 + 1, 0},
		"an if that leaves": {main(code(localGet, 0, if_, empty, i32Const, 5, return_, end, i32Const, 6)), 0, 2 + 1, 6},
		"an if that left":   {main(code(localGet, 0, if_, empty, i32Const, 5, return_, end, i32Const, 6)), 1, 2 + 2, 5},
		"a loop":            {main(code(loopTimes, localGet, 0)), 1000, 5*1000 + 1, 0},
		"a loop in a loop": {main(code(loop, empty, // 8 + 5*10 each time: set, loop, and 5 to go round
			i32Const, 10, localSet, 1,
			loop, empty, localGet, 1, i32Const, 1, i32Sub, localTee, 1, brIf, 0, end,
			localGet, 2, i32Const, 1, i32Add, localSet, 2,
			localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end, localGet, 2)), 7, 7*(2+5*10+4+5) + 1, 7},
		"a loop left from within": {main(code(block, empty, loop, empty, // 4 each time, 4 to go round
			localGet, 0, i32Const, 3, i32LtS, brIf, 1,
			localGet, 0, i32Const, 1, i32Sub, localSet, 0, br, 0, end, end, localGet, 0)), 5, 3*(4+5) + 4 + 1, 2},
		"br_table, first": {main(code(block, empty, block, empty, block, empty, localGet, 0, brTable, 2, 0, 1, 2, end,
			i32Const, 10, return_, end, i32Const, 20, i32Const, 1, i32Add, return_, end, i32Const, 30)), 0, 2 + 2, 10},
		"br_table, second": {main(code(block, empty, block, empty, block, empty, localGet, 0, brTable, 2, 0, 1, 2, end,
			i32Const, 10, return_, end, i32Const, 20, i32Const, 1, i32Add, return_, end, i32Const, 30)), 1, 2 + 4, 21},
		"br_table, default": {main(code(block, empty, block, empty, block, empty, localGet, 0, brTable, 2, 0, 1, 2, end,
			i32Const, 10, return_, end, i32Const, 20, i32Const, 1, i32Add, return_, end, i32Const, 30)), 9, 2 + 1, 30},
		"code that nothing reaches":  {main(code(block, empty, br, 0, i32Const, 1, drop, localGet, 0, if_, empty, nop, end, end, i32Const, 4)), 0, 1 + 1, 4},
		"behind a return":            {main(code(i32Const, 4, return_, loop, empty, i32Const, 1, drop, br, 0, end)), 0, 2, 4},
		"memory.fill of 0 bytes":     {main(code(i32Const, 0, i32Const, 1, localGet, 0, misc, memoryFill, 0, i32Const, 0)), 0, 5, 0},
		"memory.fill of 63 bytes":    {main(code(i32Const, 0, i32Const, 1, localGet, 0, misc, memoryFill, 0, i32Const, 0)), 63, 5, 0},
		"memory.fill of 64 bytes":    {main(code(i32Const, 0, i32Const, 1, localGet, 0, misc, memoryFill, 0, i32Const, 0)), 64, 5 + 1, 0},
		"memory.fill of 65536 bytes": {main(code(i32Const, 0, i32Const, 1, localGet, 0, misc, memoryFill, 0, i32Const, 0)), 65536, 5 + 1024, 0},
		"memory.copy":                {main(code(i32Const, 9, i32Const, 1, localGet, 0, misc, memoryCopy, 0, 0, i32Const, 0)), 1000, 5 + 15, 0},
		"memory.grow":                {main(code(localGet, 0, memoryGrow, 0)), 3, 2 + 3*16, 2},
		"memory.grow beyond all":     {main(code(localGet, 0, memoryGrow, 0)), 1<<32 - 1, 2 + (1<<32-1)*16, 1<<32 - 1},
		"a call of the host":         {withImport(code(localGet, 0, i32Const, 2, call, 0, i32Sub)), 5, 4 + 100, 1<<32 - 3},
		"values of a block": {program{
			types: []string{of("\x7f", "\x7f"), of("\x7f", "\x7f\x7f")}, exports: []string{export("f", 0)},
			funcs: []function{{code: code(localGet, 0, block, 1, localGet, 0, localGet, 0, brIf, 0, drop, i32Const, 5, end, i32Add)}},
		}, 3, 1 + 3 + 1, 6},
		"values of a loop": {program{
			types: []string{of("\x7f", "\x7f"), of("\x7f", "\x7f")}, exports: []string{export("f", 0)},
			funcs: []function{{locals: 1, code: code(localGet, 0, loop, 1, i32Const, 1, i32Sub, localTee, 1, localGet, 1, brIf, 0, end)}},
		}, 4, 1 + 4*5, 0},
		"calls": {program{
			types: []string{of("\x7f", "\x7f")}, exports: []string{export("f", 1)},
			funcs: []function{{code: code(localGet, 0, i32Const, 2, i32Mul)}, {code: code(localGet, 0, call, 0, call, 0)}},
		}, 5, 3 + 2*3, 20},
		"two results of a call": {program{
			types: []string{of("\x7f", "\x7f"), of("\x7f", "\x7f\x7f")}, exports: []string{export("f", 1)},
			funcs: []function{
				{of: 1, code: code(localGet, 0, call, 2, localGet, 0)},
				{code: code(localGet, 0, call, 0, i32Sub)},
				{code: code(localGet, 0, i32Const, 1, i32Add)},
			},
		}, 5, 3 + 3 + 3, 1},
		"a branch out of a function that calls": {program{
			types: []string{of("\x7f", "\x7f")}, exports: []string{export("f", 0)},
			funcs: []function{
				{code: code(loop, empty, localGet, 0, call, 1, br, 1, end, unreachable)},
				{code: code(localGet, 0, i32Const, 1, i32Add)},
			},
		}, 5, 3 + 3, 6},
		"recursion": {main(code(localGet, 0, if_, i32, // 2, and 6 but for the last
			localGet, 0, localGet, 0, i32Const, 1, i32Sub, call, 0, i32Mul, else_, i32Const, 1, end)), 5, 5*(2+6) + 2 + 1, 120},
		"call_indirect": {program{
			types: []string{of("\x7f", "\x7f")}, exports: []string{export("f", 2)},
			tables: []string{"\x70\x00\x02"}, elements: []string{"\x00" + code(i32Const, 0, end) + "\x02\x00\x01"},
			funcs: []function{
				{code: code(i32Const, 10)},
				{code: code(i32Const, 9, i32Const, 11, i32Add)},
				{code: code(i32Const, 3, localGet, 0, callIndirect, 0, 0)},
			},
		}, 1, 3 + 3, 20},
		"the host by call_indirect": {program{
			types: []string{of("\x7f", "\x7f"), of("\x7f\x7f", "\x7f\x7f")}, exports: []string{export("f", 1)},
			imports: []string{sized("env") + sized("host") + "\x00\x01"},
			tables:  []string{"\x70\x00\x01"}, elements: []string{"\x00" + code(i32Const, 0, end) + "\x01\x00"},
			funcs: []function{{code: code(localGet, 0, i32Const, 9, i32Const, 0, callIndirect, 1, 0, i32Sub)}},
		}, 5, 5 + 100, 4},
		"a thousand buffers": {wasiCalling("fd_write", of("\x7f\x7f\x7f\x7f", "\x7f"), code(i32Const, 1, i32Const, 0, localGet, 0, i32Const, 8, call, 0)), 1000, 5 + 100 + 16*1000, 0},
		"random bytes":       {wasiCalling("random_get", of("\x7f\x7f", "\x7f"), code(i32Const, 0, localGet, 0, call, 0)), 999, 3 + 100 + 999, 0},
		"no number of them":  {wasiCalling("fd_read", of("\x7e\x7e\x7e", ""), code(i64Const, 7, i64Const, 7, i64Const, 7, call, 0, i32Const, 0)), 9, 5 + 100, 0},
		"a start function": {program{
			types: []string{of("\x7f", "\x7f"), of("", "")}, exports: []string{export("f", 1)}, start: "\x00",
			globals: []string{"\x7f\x01" + code(i32Const, 1, end)},
			funcs:   []function{{of: 1, code: code(i32Const, 42, globalSet, 0)}, {code: code(globalGet, 0)}},
		}, 0, 2 + 1, 42},
		"memory.init": {program{
			types: []string{of("\x7f", "\x7f")}, exports: []string{export("f", 0)}, memories: []string{"\x00\x01"},
			count: "\x01", data: []string{"\x01" + sized(strings.Repeat("x", 200))},
			funcs: []function{{code: code(i32Const, 0, i32Const, 0, localGet, 0, misc, memoryInit, 0, 0, i32Const, 0)}},
		}, 130, 5 + 2, 0},
		"elements of tables": {program{
			types: []string{of("\x7f", "\x7f")}, exports: []string{export("f", 0)},
			tables: []string{"\x70\x00\x02"}, elements: []string{"\x01\x00" + "\x03\x00\x00\x00"},
			funcs: []function{{code: code(
				refNull, funcref, localGet, 0, misc, tableGrow, 0, drop, // 4 and the argument
				i32Const, 0, refFunc, 0, localGet, 0, misc, tableFill, 0, // 4, the argument and the reference
				i32Const, 0, i32Const, 0, i32Const, 3, misc, tableInit, 0, 0, // 4 and 3
				i32Const, 0, i32Const, 1, i32Const, 2, misc, tableCopy, 0, 0, // 4 and 2
				i32Const, 0)}},
		}, 7, 4 + 7 + 4 + 7 + 16 + 4 + 3 + 4 + 2 + 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			for _, slice := range []int64{0, 1, 3, 100} {
				opts := wasmfuel.Options{Slice: slice}
				got := m.run(t, test.program.bytes(), opts, plenty, test.arg)
				if got.err != nil || got.exhausted || got.steps != test.want || uint32(got.value[0]) != uint32(test.value) {
					t.Fatalf("in slices of %d: got %+v, want %d steps and the value %d", slice, got, test.want, test.value)
				}
				if got := m.run(t, test.program.bytes(), opts, test.want, test.arg); got.err != nil || got.exhausted || got.steps != test.want {
					t.Errorf("in slices of %d: with just enough: %+v", slice, got)
				}
				if got := m.run(t, test.program.bytes(), opts, test.want-1, test.arg); !got.exhausted {
					t.Errorf("in slices of %d: with one step less than enough: %+v", slice, got)
				}
			}
		})
	}
}

// What ends in a trap has paid for all it did, and at most for what it would have done
// together with that.
func TestT37FuelOfATrap(t *testing.T) {
	tests := map[string]struct {
		code        string
		least, most int64
	}{
		"unreachable":      {code(i32Const, 1, drop, unreachable), 3, 3},
		"a division":       {code(i32Const, 1, i32Const, 0, i32DivS, i32Const, 1, i32Add), 3, 5},
		"outside memory":   {code(i32Const, -1, i32Load, 2, 0, i32Const, 1, i32Add), 2, 4},
		"in the loop":      {code(loop, empty, i32Const, 1, localGet, 0, i32Const, 1, i32Sub, localTee, 0, i32DivS, drop, br, 0, end, unreachable), 9*8 + 6, 10 * 8},
		"a fill too large": {code(i32Const, 0, i32Const, 0, i32Const, -1, misc, memoryFill, 0, i32Const, 1), 4 + (1<<32-1)/64, 5 + (1<<32-1)/64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newMachine(t).run(t, main(test.code).bytes(), wasmfuel.Options{}, plenty, 10)
			if got.err == nil || got.exhausted || got.steps < test.least || got.steps > test.most {
				t.Errorf("got %+v, want a trap after %d to %d steps", got, test.least, test.most)
			}
		})
	}
}

// SPEC-TOOLS 3.7: fuel ends an endless loop, in whatever way it has none.
func TestT37FuelEndsWhatIsEndless(t *testing.T) {
	round := code(br, 0)
	tests := map[string]program{
		"a loop":            main(code(loop, empty, round, end, i32Const, 0)),
		"a loop of nops":    main(code(loop, empty, nop, nop, block, empty, end, round, end, i32Const, 0)),
		"loops in loops":    main(code(loop, empty, loop, empty, loop, empty, round, end, round, end, round, end, i32Const, 0)),
		"an outer loop":     main(code(loop, empty, loop, empty, br, 1, end, end, i32Const, 0)),
		"a loop by if":      main(code(loop, empty, i32Const, 1, if_, empty, br, 1, end, end, i32Const, 0)),
		"a loop by else":    main(code(loop, empty, i32Const, 0, if_, empty, nop, else_, br, 1, end, end, i32Const, 0)),
		"a loop by a table": main(code(loop, empty, localGet, 0, brTable, 1, 0, 0, end, i32Const, 0)),
		"recursion":         main(code(localGet, 0, call, 0)),
		"recursion in a loop that is never gone round": main(code(loop, empty, localGet, 0, call, 0, drop, end, i32Const, 0)),
		"the host in a loop":                           withImport(code(loop, empty, i32Const, 0, i32Const, 0, call, 0, drop, drop, br, 0, end, i32Const, 0)),
		"fills in a loop":                              main(code(loop, empty, i32Const, 0, i32Const, 0, i32Const, 65536, misc, memoryFill, 0, br, 0, end, i32Const, 0)),
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			got := newMachine(t).run(t, p.bytes(), wasmfuel.Options{Slice: 1000}, 10_000, 0)
			if !got.exhausted || got.err == nil {
				t.Errorf("got %+v", got)
			}
			if over := got.steps - 10_000; over > 2000 {
				t.Errorf("it went %d steps on with nothing left", over)
			}
		})
	}
	t.Run("what the host did not fuel", func(t *testing.T) {
		if got := newMachine(t).run(t, main(code(i32Const, 1)).bytes(), wasmfuel.Options{}, 0, 0); !got.exhausted {
			t.Errorf("got %+v", got)
		}
	})
}

// The host is asked after each slice, and after each call of the host, and what it panics
// with ends the run.
func TestT37TheHostIsAsked(t *testing.T) {
	m := newMachine(t)
	round := code(loop, empty, localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end, localGet, 0)
	m.run(t, main(round).bytes(), wasmfuel.Options{Slice: 100}, plenty, 10_000)
	if m.yields < 450 || m.yields > 510 {
		t.Errorf("50000 steps in slices of 100 asked %d times", m.yields)
	}
	m.yields = 0
	m.run(t, withImport(code(localGet, 0, i32Const, 2, call, 0, call, 0, i32Sub)).bytes(), wasmfuel.Options{}, plenty, 1)
	if m.yields != 3 || m.host != 2 { // once for the first slice
		t.Errorf("two calls of the host (%d) asked %d times", m.host, m.yields)
	}

	stop := errors.New("not wanted any more")
	r := wazero.NewRuntime(t.Context())
	defer r.Close(t.Context()) //nolint:errcheck // it is in memory
	if _, err := r.NewHostModuleBuilder(wasmfuel.Host).NewFunctionBuilder().WithFunc(func() { panic(stop) }).Export(wasmfuel.Yield).Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := (&machine{Runtime: r}).run(t, main(code(loop, empty, br, 0, end, i32Const, 0)).bytes(), wasmfuel.Options{}, plenty, 0)
	if !errors.Is(got.err, stop) || got.exhausted {
		t.Errorf("got %+v", got)
	}
}

func TestUsed(t *testing.T) {
	for _, test := range []struct {
		given, left, used int64
		exhausted         bool
	}{
		{10, 1000, 0, false},
		{10, 999, 1, false},
		{10, 900, 1, false},
		{10, 899, 2, false},
		{10, 0, 10, false},
		{10, -1, 10, true},
		{1 << 62, 1<<62/100*100 - 1, 1, false},
	} {
		for _, slice := range []int64{0, 50, -50} {
			used, exhausted := wasmfuel.Used(test.given, uint64(test.left-slice), uint64(slice))
			if used != test.used || exhausted != test.exhausted {
				t.Errorf("Used of %d with %d left: %d, %t", test.given, test.left, used, exhausted)
			}
		}
	}
}
