package wasm_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/wasm"
)

// SPEC-TOOLS 3.7: the page's own example, under the page's own limits.
func TestT37ThePagesExample(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("testdata", "echo", "main.go"))
	if err != nil || !strings.Contains(string(page), `_ = json.NewEncoder(os.Stdout).Encode(resp)`) {
		t.Fatalf("it is not the page's: %v", err)
	}
	module := built(t, "echo")
	for _, limits := range []wasm.Limits{
		{WASI: true}, // which are the defaults
		{WASI: true, Entrypoint: "run", MaxMemory: 67108864, Fuel: 1000000},
		{WASI: true, Entrypoint: "run", MaxMemory: 16777216, Fuel: 100000},
	} {
		m := compile(t, shared, module, limits)
		out, err := m.Run(t.Context(), []byte(`{"input":"{\"a\":1}"}`), mostOutput)
		if err != nil || string(out.Stdout) != `{"contract_version":"v1","output":"{\"a\":1}","status":"ok"}`+"\n" {
			t.Errorf("got %q, %v", out.Stdout, err)
		}
		if out.FuelUsed <= 0 || out.FuelUsed > 100000 || out.MemoryPeak < 1<<20 || out.MemoryPeak > 16777216 {
			t.Errorf("it took %d of fuel and %d bytes", out.FuelUsed, out.MemoryPeak)
		}
	}
}

// SPEC-TOOLS 3.7: whatever a module does, its call ends as it should, and the next
// one is well.
func TestT37AModuleThatMisbehaves(t *testing.T) {
	needs.Time(t, "waits for seconds")
	const most = 1 << 20
	limits := wasm.Limits{WASI: true, MaxMemory: 16 << 20, Fuel: 5_000_000}
	m := compile(t, shared, built(t, "rogue"), limits)
	limits.Fuel *= 20
	rich := compile(t, shared, built(t, "rogue"), limits) // recursion ends by memory, not by fuel
	for input, words := range map[string][]string{
		"loop":         {"ran out of fuel", "5000000", "spec.wasm.fuel"},
		"recurse":      {"exited with code 2", "stack"},
		"grow":         {"exited with code 2", "out of memory"},
		"exit":         {"exited with code 3", "I leave"},
		"panic":        {"exited with code 2", "panic: I cannot"},
		"flood stdout": {"more than 1048576 bytes"},
	} {
		t.Run(input, func(t *testing.T) {
			m := m
			if input == "recurse" {
				m = rich
			}
			out, err := m.Run(t.Context(), []byte(input), most)
			fails(t, err, fault.ExecutionFailed, false, words...)
			if out.MemoryPeak > 16<<20 || len(out.Stdout) > most || out.FuelUsed <= 0 {
				t.Errorf("it took %d bytes and %d of fuel, and said %d bytes", out.MemoryPeak, out.FuelUsed, len(out.Stdout))
			}
			if got := answer(t, m, "well"); got != "well" {
				t.Errorf("the next call: %q", got)
			}
		})
	}
	if got := answer(t, m, "leave well"); got != "well" {
		t.Errorf("exit code 0: %q", got)
	}
	out, err := m.Run(t.Context(), []byte("flood stderr"), mostOutput)
	said := string(out.Stderr)
	if err != nil || len(said) > 65<<10 || !strings.HasPrefix(said, "the first line\n") || !strings.HasSuffix(said, "the last line\n") {
		t.Errorf("stderr: %d bytes, %.40q … %q, %v", len(said), said, said[max(0, len(said)-40):], err)
	}
}

// SPEC-TOOLS 3.7: with WASI only stdio: no files, network, environment or arguments.
func TestT37AModuleReachesNothing(t *testing.T) {
	needs.Time(t, "compiles a module")
	t.Setenv("ORLA_SECRET", "hunter2")
	m := compile(t, shared, built(t, "rogue"), wasm.Limits{WASI: true})
	if got := answer(t, m, "reach"); got != "done" {
		t.Errorf("it reached:\n%s", got)
	}
}

// SPEC-TOOLS 3.7: the timeout ends it even with endless fuel, whatever it does.
func TestT37TheDeadlineEndsIt(t *testing.T) {
	rogue := compile(t, shared, built(t, "rogue"), wasm.Limits{WASI: true, Fuel: endless})
	if got := answer(t, rogue, "nap"); got != "awake" {
		t.Errorf("a short sleep: %q", got)
	}
	spin := buffered(loop, empty, branch, 0, end, unreachable)
	// A call tree that no computer sees the end of, without a loop.
	tree := buffered(call, 2, i64Const, int64(0))
	tree.funcs = append(tree.funcs, function{of: 2, body: code(i32Const, int64(60), call, 3)})
	tree.types = append(tree.types, funcType{params: []byte{i32}})
	tree.funcs = append(tree.funcs, function{of: 3, body: code(
		localGet, 0, ifThen, empty,
		localGet, 0, i32Const, int64(1), i32Sub, call, 3,
		localGet, 0, i32Const, int64(1), i32Sub, call, 3,
		end)})
	starts := buffered(i64Const, int64(0))
	starts.funcs = append(starts.funcs, function{of: 2, body: code(loop, empty, branch, 0, end)})
	starts.start = 3
	for name, of := range map[string]struct {
		m     *wasm.Module
		input string
	}{
		"a loop":           {rogue, "loop"},
		"a sleep":          {rogue, "sleep"},
		"the least loop":   {compile(t, shared, spin.bytes(), wasm.Limits{Fuel: endless}), ""},
		"calls alone":      {compile(t, shared, tree.bytes(), wasm.Limits{Fuel: endless}), ""},
		"a start function": {compile(t, shared, starts.bytes(), wasm.Limits{Fuel: endless}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			late := fault.New(fault.Timeout, "it took too long")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, late)
			defer cancel()
			_, err := of.m.Run(ctx, []byte(of.input), mostOutput)
			fails(t, err, fault.Timeout, true, late.Reason)

			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, leave)
			_, err = of.m.Run(ctx, []byte(of.input), mostOutput)
			fails(t, err, fault.Canceled, false)
		})
	}
}
