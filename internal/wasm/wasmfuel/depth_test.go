package wasmfuel_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// each repeats code with a number in it, below n.
func each(n int, with func(i int) string) string {
	var s strings.Builder
	for i := range n {
		s.WriteString(with(i))
	}
	return s.String()
}

// index is a number as an instruction has it.
func index(op op, i int) string { return code(op) + unsigned(i) }

// loaded is what stands at a place of memory.
func loaded(i int) string { return code(localGet, 0, i32Load, 2) + unsigned(4*i) }

// recursions are functions of which each calls itself for ever, with as much on the stack as
// their bodies can bring about.
func recursions() map[string]program {
	const n = 300
	add := strings.Repeat(code(i32Add), n)
	locals := func(set func(i int) string) string {
		return each(n, func(i int) string { return set(i) + index(localSet, i+1) })
	}
	sum := each(n, func(i int) string { return index(localGet, i+1) }) + code(i32Const, 0) + add
	self := code(localGet, 0, call, 0)
	with := func(body string, change func(*program)) program {
		p := main(body)
		p.funcs[0].locals = n
		if change != nil {
			change(&p)
		}
		return p
	}
	wide := strings.Repeat("\x7f", n)
	vectors := func(p *program) { p.funcs[0].locals, p.funcs[0].more = 0, []string{unsigned(n) + "\x7b"} }
	return map[string]program{
		"nothing":           with(self, nil),
		"few locals":        main(code(loaded(1), localSet, 1, self, localGet, 1, i32Add)),
		"locals":            with(code(locals(loaded), self, sum, i32Add), nil),
		"the operand stack": with(code(each(n, loaded), self, add), nil),
		"values of locals": with(code(each(n, func(i int) string { return loaded(i) + code(localSet, 1, localGet, 1) }),
			self, add), nil),
		"locals in loops": with(code(locals(loaded), loop, empty, self, localSet, 1,
			each(n, func(i int) string { return index(localGet, i+1) + code(localGet, 1, i32Add) + index(localSet, i+1) }),
			localGet, 1, brIf, 0, end, sum), nil),
		"loops in loops": with(code(locals(loaded), loop, empty, loop, empty, loop, empty, self, localSet, 1,
			each(n, func(i int) string { return index(localGet, i+1) + code(localGet, 1, i32Add) + index(localSet, i+1) }),
			localGet, 1, brIf, 0, end, localGet, 2, brIf, 0, end, localGet, 3, brIf, 0, end, sum), nil),
		"branches": with(code(localGet, 0, if_, empty, locals(loaded), else_, locals(func(i int) string { return loaded(i + n) }), end,
			self, sum, i32Add), nil),
		"many branches": with(code(each(30, func(i int) string {
			return code(localGet, 0, if_, empty) + locals(func(j int) string { return loaded(i*n + j) }) + code(end) + self + code(localSet, 0)
		}), sum), nil),
		"globals": with(code(each(n, func(i int) string { return index(globalGet, i) }), self, add), func(p *program) {
			p.globals = slices.Repeat([]string{"\x7f\x01" + code(i32Const, 0, end)}, n)
		}),
		"globals before and after": with(code(each(n, func(i int) string { return index(globalGet, i) }), self,
			each(n, func(i int) string { return index(globalGet, i) }), self, add, add, i32Add), func(p *program) {
			p.globals = slices.Repeat([]string{"\x7f\x01" + code(i32Const, 0, end)}, n)
		}),
		"stores to many places": with(code(each(n, func(i int) string {
			return code(localGet, 0, i32Const, i, i32Xor, i32Load, 2) + unsigned(4*i) + code(localGet, 0, i32Const, i, i32Xor, i32Load, 2) + unsigned(4*i) + code(i32Xor)
		}), self, add), nil),
		"products in loops": with(code(each(n, func(i int) string { return code(localGet, 0, i32Const, i, i32Mul) }),
			loop, i32, self, end, add), nil),
		"parameters": with(code(each(n, loaded), call, 0, drop, i32Const, 1), func(p *program) {
			p.types[0], p.exports = of(wide, "\x7f"), []string{export("g", 0), export("f", 1)}
			p.types = append(p.types, of("", "\x7f"))
			p.funcs = append(p.funcs, function{of: 1, code: code(strings.Repeat(code(i32Const, 8), n), call, 0)})
		}),
		"results": with(code(each(n, loaded), drop, self), func(p *program) {
			p.types[0] = of("\x7f", wide)
			p.funcs[0].code = code(self, each(n-1, func(int) string { return code(drop) }), each(n, loaded), strings.Repeat(code(i32Add), n), strings.Repeat(code(localGet, 0), n-1))
		}),
		"a call by table": with(code(each(n, loaded), localGet, 0, i32Const, 0, callIndirect, 0, 0, add), func(p *program) {
			p.tables, p.elements = []string{"\x70\x00\x01"}, []string{"\x00" + code(i32Const, 0, end) + "\x01\x00"}
		}),
		"vectors": with(code(each(n, func(i int) string {
			return code(localGet, 0, vector, op(0), 0) + unsigned(16*i) + index(localSet, i+1)
		}), self, each(n, func(i int) string { return index(localGet, i+1) + code(vector, op(0x53)) }), strings.Repeat(code(i32Add), n-1), i32Add), vectors),
		"memory.fill and growth": with(code(each(n, loaded), i32Const, 0, i32Const, 0, i32Const, 0, misc, memoryFill, 0,
			i32Const, 0, memoryGrow, 0, self, i32Add, add), nil),
	}
}

// SPEC S2: Depth is never less than what the runtime has made of the call stack when that
// is full: some 84 MB, since it doubles it while it has at most 50 MB.
func TestS2TheDepthOfTheStackIsCounted(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it fills stacks")
	}
	const full = 84_000_000
	for name, p := range recursions() {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			metered, _, err := wasmfuel.Instrument(p.bytes(), wasmfuel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			i, err := m.InstantiateWithConfig(t.Context(), metered, wazero.NewModuleConfig().WithName("").WithStartFunctions())
			if err != nil {
				t.Fatal(err)
			}
			i.ExportedGlobal(wasmfuel.Fuel).(api.MutableGlobal).Set(plenty)
			f := i.ExportedFunction("f")
			_, err = f.Call(t.Context(), make([]uint64, len(f.Definition().ParamTypes()))...)
			if err == nil || !strings.Contains(err.Error(), "stack overflow") {
				t.Fatalf("got %v; want a stack overflow", err)
			}
			if depth := int64(i.ExportedGlobal(wasmfuel.Depth).Get()); depth < full {
				t.Errorf("it counts %d bytes", depth)
			} else if testing.Verbose() {
				fmt.Println(name, float64(depth)/full)
			}
		})
	}
}
