package wasm_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/wasm"
)

// resident is how much memory this process has, in bytes.
func resident(t *testing.T) int {
	t.Helper()
	said, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(said))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// Of hundreds of calls that took 4 MiB each, nothing stays, whichever way they end.
func TestT37CallsLeaveNoMemory(t *testing.T) {
	needs.Time(t, "makes hundreds of calls")
	const touched = 4 << 20
	fill := []any{i32Const, int64(touched / 65536), memoryGrow, 0, drop, i32Const, int64(0), i32Const, int64(1), i32Const, int64(touched), 0xfc, 11, 0}
	m := compile(t, shared, buffered(append(fill, i64Const, int64(0))...).bytes(), wasm.Limits{})
	traps := compile(t, shared, buffered(append(fill, unreachable)...).bytes(), wasm.Limits{})
	starts := buffered(i64Const, int64(0))
	starts.funcs = append(starts.funcs, function{of: 2, body: code(unreachable)})
	starts.start = 3
	never := compile(t, shared, starts.bytes(), wasm.Limits{})
	calls := func(n int) {
		for range n {
			if out, err := m.Run(t.Context(), nil, mostOutput); err != nil || out.MemoryPeak != touched+2*65536 {
				t.Fatalf("it took %d bytes, %v", out.MemoryPeak, err)
			}
			for _, m := range []*wasm.Module{traps, never} {
				if _, err := m.Run(t.Context(), nil, mostOutput); err == nil {
					t.Fatal("it did not trap")
				}
			}
		}
	}
	calls(50)
	runtime.GC()
	before := resident(t)
	calls(200)
	runtime.GC()
	if grown := resident(t) - before; grown > 32<<20 {
		t.Errorf("600 calls left %d MiB", grown>>20)
	}
}
