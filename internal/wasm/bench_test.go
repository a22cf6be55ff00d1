package wasm_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/wasm"
)

// BenchmarkWarmCall is a call of the page's example whose module is compiled.
func BenchmarkWarmCall(b *testing.B) {
	m := compile(b, shared, built(b, "echo"), wasm.Limits{WASI: true})
	for b.Loop() {
		answer(b, m, `{"input":"{}"}`)
	}
}

// BenchmarkLeastCall is a call of a module that does next to nothing.
func BenchmarkLeastCall(b *testing.B) {
	m := compile(b, shared, buffered(echoing).bytes(), wasm.Limits{})
	for b.Loop() {
		answer(b, m, `{"input":"{}"}`)
	}
}

// BenchmarkColdCall is a first call with nothing on the disk.
func BenchmarkColdCall(b *testing.B) {
	module := built(b, "echo")
	for b.Loop() {
		r := newRuntime(b, wasm.Options{CacheDir: b.TempDir()})
		answer(b, compile(b, r, module, wasm.Limits{WASI: true}), `{"input":"{}"}`)
		r.Close()
	}
}

// BenchmarkColdCallFromDisk is a first call with the native code on the disk.
func BenchmarkColdCallFromDisk(b *testing.B) {
	module := built(b, "echo")
	compile(b, shared, module, wasm.Limits{WASI: true})
	for b.Loop() {
		r := newRuntime(b, wasm.Options{})
		answer(b, compile(b, r, module, wasm.Limits{WASI: true}), `{"input":"{}"}`)
		r.Close()
	}
}

// BenchmarkStopTheWorld is how long Go's runtime waits to stop everything, as the garbage
// collector does, next to a module.
func BenchmarkStopTheWorld(b *testing.B) {
	const size = 64 << 20
	fill := []any{i32Const, int64(size>>16 - 2), memoryGrow, 0, drop, loop, empty, i32Const, int64(0), i32Const, int64(1), i32Const, int64(size), 0xfc, 11, 0, branch, 0, end, unreachable}
	touch := []any{i32Const, int64(size>>16 - 2), memoryGrow, 0, drop, // a byte of each page, over and over
		loop, empty, localGet, 0, i32Const, int64(1), store, 0, 0, localGet, 0, i32Const, int64(4096), i32Add, i32Const, int64(size - 1), 0x71, localSet, 0, branch, 0, end, unreachable}
	for name, module := range map[string][]byte{"nothing": nil, "loop": spinning(), "fill": buffered(fill...).bytes(), "touch": buffered(touch...).bytes()} {
		b.Run(name, func(b *testing.B) {
			if module != nil {
				m := compile(b, shared, module, wasm.Limits{Fuel: endless, MaxMemory: size})
				ctx, leave := context.WithCancel(b.Context())
				var calls sync.WaitGroup
				calls.Go(func() { _, _ = m.Run(ctx, nil, mostOutput) }) // it ends with ctx
				defer calls.Wait()
				defer leave()
			}
			var waits []time.Duration
			var stats runtime.MemStats
			for b.Loop() {
				time.Sleep(time.Millisecond)
				start := time.Now()
				runtime.ReadMemStats(&stats)
				waits = append(waits, time.Since(start))
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "max-µs")
		})
	}
}
