package wasmfuel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// A module that never ends runs out of fuel.
func ExampleInstrument() {
	ctx := context.Background()
	// (module (func (export "spin") (loop br 0)))
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x08\x01\x04spin\x00\x00\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b")

	metered, _, err := wasmfuel.Instrument(module, wasmfuel.Options{MaxMemory: 16 << 20})
	if err != nil {
		log.Fatal(err)
	}

	runtime := wazero.NewRuntime(ctx)
	defer runtime.Close(ctx) //nolint:errcheck // it is in memory
	host := runtime.NewHostModuleBuilder(wasmfuel.Host)
	host.NewFunctionBuilder().WithFunc(func() {}).Export(wasmfuel.Yield) // a panic with an error here ends the call
	if _, err := host.Instantiate(ctx); err != nil {
		log.Fatal(err)
	}
	instance, err := runtime.InstantiateWithConfig(ctx, metered, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		log.Fatal(err)
	}

	const given = 1000
	fuel := instance.ExportedGlobal(wasmfuel.Fuel).(api.MutableGlobal)
	fuel.Set(wasmfuel.Steps(given))
	if start := instance.ExportedFunction(wasmfuel.Start); start != nil { // if the module has a start function
		_, err = start.Call(ctx)
	}
	if err == nil {
		_, err = instance.ExportedFunction("spin").Call(ctx)
	}
	used, exhausted := wasmfuel.Used(given, fuel.Get(), instance.ExportedGlobal(wasmfuel.Slice).Get())
	fmt.Println(err != nil, used, exhausted)
	// Output: true 1000 true
}
