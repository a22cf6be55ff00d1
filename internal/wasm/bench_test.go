package wasm_test

import (
	"testing"

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
