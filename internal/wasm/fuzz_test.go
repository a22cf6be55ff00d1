package wasm_test

import (
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/wasm"
)

// Whatever a module is, it is refused or its call ends, and Orla goes on.
func FuzzModule(f *testing.F) {
	for _, a := range []assembly{
		buffered(echoing), buffered(answering(0, 1<<20)), buffered(loop, empty, branch, 0, end, unreachable),
		buffered(i32Const, int64(1), memoryGrow, 0, drop, i64Const, int64(0)),
		buffered(refNull, funcref, i32Const, int64(5), 0xfc, 15, 0, drop, i64Const, int64(0)),
		{types: []funcType{{}}, funcs: []function{{of: 0}}, exports: []export{{"_start", 0, 0}}},
	} {
		f.Add(a.bytes(), true)
		f.Add(a.bytes(), false)
	}
	f.Fuzz(func(t *testing.T, module []byte, wasi bool) {
		r := wasm.NewRuntime(wasm.Options{})
		defer r.Close()
		m, err := r.Compile(t.Context(), module, wasm.Limits{WASI: wasi, MaxMemory: 1 << 20, Fuel: 10_000})
		if err != nil {
			if code := fault.CodeOf(err); code != fault.RuntimePolicyInvalid {
				t.Fatalf("got %v", err)
			}
			return
		}
		out, err := m.Run(t.Context(), []byte("{}"), 1<<16)
		if err != nil && fault.CodeOf(err) != fault.ExecutionFailed && fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Fatalf("got %v", err)
		}
		if len(out.Stdout) > 1<<16 || out.FuelUsed > 10_000 || out.MemoryPeak > 1<<20 {
			t.Fatalf("%d bytes, %d of fuel, %d of memory", len(out.Stdout), out.FuelUsed, out.MemoryPeak)
		}
	})
}
