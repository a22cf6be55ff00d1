package wasmfuel_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// same calls what two modules export, which are one before and after it was metered, and
// compares what they return. What does not end in time is not called without meters.
func same(t *testing.T, r wazero.Runtime, before, after wazero.CompiledModule) {
	t.Helper()
	ctx := t.Context()
	if _, err := r.NewHostModuleBuilder(wasmfuel.Host).NewFunctionBuilder().WithFunc(func() {}).Export(wasmfuel.Yield).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	quiet := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	metered, err := r.InstantiateModule(ctx, after, quiet)
	if err != nil {
		return // a segment that does not fit, or memory
	}
	fuel, slice := metered.ExportedGlobal(wasmfuel.Fuel).(api.MutableGlobal), metered.ExportedGlobal(wasmfuel.Slice)
	fuel.Set(1_000_000)
	over := func() bool { return int64(fuel.Get())+int64(slice.Get()) < 0 }
	var started error
	if start := metered.ExportedFunction(wasmfuel.Start); start != nil {
		if _, started = start.Call(ctx); over() {
			return
		}
	}
	plain, err := r.InstantiateModule(ctx, before, quiet)
	if (err == nil) != (started == nil) {
		t.Fatalf("start, before: %v; after: %v", err, started)
	}
	if err != nil {
		return
	}
	exports := before.ExportedFunctions()
	for _, name := range slices.Sorted(maps.Keys(exports)) {
		if slices.ContainsFunc(exports[name].ParamTypes(), opaque) {
			continue
		}
		args := make([]uint64, len(exports[name].ParamTypes()))
		for i := range args {
			args[i] = uint64(i) + 3
		}
		got, errAfter := metered.ExportedFunction(name).Call(ctx, args...)
		if over() {
			return
		}
		want, errBefore := plain.ExportedFunction(name).Call(ctx, args...)
		if (errBefore == nil) != (errAfter == nil) {
			t.Fatalf("%q, before: %v; after: %v", name, errBefore, errAfter)
		}
		if errAfter == nil && !slices.ContainsFunc(exports[name].ResultTypes(), opaque) && !slices.Equal(got, want) {
			t.Fatalf("%q, before: %v; after: %v", name, want, got)
		}
	}
}

// opaque reports whether a value is a pointer of the runtime's, or more than one word.
func opaque(of api.ValueType) bool { return of < api.ValueTypeF64 }
