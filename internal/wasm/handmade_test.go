package wasm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/wasm"
)

// SPEC-TOOLS 3.7: memory above the limit fails in the guest, and a declared minimum
// above it is refused.
func TestT37MemoryIsBounded(t *testing.T) {
	// The answer is what memory.grow returned, at 8 in memory, which is then stored to.
	grow := func(pages int64) []byte {
		return buffered(i32Const, int64(8), i32Const, pages, memoryGrow, 0, store, 2, 0, answering(8, 4)).bytes()
	}
	const limit = 4 * 64 << 10
	for pages, want := range map[int64]string{2: "\x02\x00\x00\x00", 3: "\xff\xff\xff\xff", 65535: "\xff\xff\xff\xff", 0: "\x02\x00\x00\x00"} {
		m := compile(t, shared, grow(pages), wasm.Limits{MaxMemory: limit + 100}) // only whole pages count
		out, err := m.Run(t.Context(), nil, mostOutput)
		if err != nil || string(out.Stdout) != want || out.MemoryPeak > limit {
			t.Errorf("%d pages more: %q, %v, peak %d", pages, out.Stdout, err, out.MemoryPeak)
		}
	}
	declares := buffered(i64Const, int64(0))
	declares.memory = []byte{0, 5}
	_, err := shared.Compile(t.Context(), declares.bytes(), wasm.Limits{MaxMemory: limit})
	fails(t, err, fault.RuntimePolicyInvalid, false, "memory", "5 pages", "4 pages")
	declares.memory = []byte{1, 2, 100} // a maximum above it is lowered
	compile(t, shared, declares.bytes(), wasm.Limits{MaxMemory: limit})

	outside := buffered(i32Const, int64(8), i32Const, int64(0x20000), load, 2, 0, store, 2, 0, i64Const, int64(0))
	_, err = compile(t, shared, outside.bytes(), wasm.Limits{}).Run(t.Context(), nil, mostOutput)
	fails(t, err, fault.ExecutionFailed, false, "out of bounds memory access")
}

// Giant tables are refused, or do not grow to be ones.
func TestT37TablesAreBounded(t *testing.T) {
	giant := buffered(i64Const, int64(0))
	giant.tables = [][]byte{{funcref, 0, 0xff, 0xff, 0xff, 0x3f}} // 2^27-1 elements of 8 bytes
	_, err := shared.Compile(t.Context(), giant.bytes(), wasm.Limits{})
	fails(t, err, fault.RuntimePolicyInvalid, false, "table")
	many := buffered(i64Const, int64(0))
	for range 100 {
		many.tables = append(many.tables, []byte{funcref, 0, 0xff, 0xff, 0x3f}) // of 2^20-1 elements each
	}
	_, err = shared.Compile(t.Context(), many.bytes(), wasm.Limits{})
	fails(t, err, fault.RuntimePolicyInvalid, false, "table")

	grows := buffered(i32Const, int64(8), refNull, funcref, i32Const, int64(1<<26), 0xfc, 15, 0, store, 2, 0, answering(8, 4))
	grows.tables = [][]byte{{funcref, 0, 1}}
	if got := answer(t, compile(t, shared, grows.bytes(), wasm.Limits{Fuel: endless}), ""); got != "\xff\xff\xff\xff" {
		t.Errorf("table.grow returned %q", got)
	}
}

// Recursion ends, by fuel or by the end of the stack, and the host stays healthy.
func TestT37RecursionEnds(t *testing.T) {
	deep := buffered(call, 2, i64Const, int64(0))
	deep.funcs = append(deep.funcs, function{of: 2, body: code(call, 2)})
	_, err := compile(t, shared, deep.bytes(), wasm.Limits{Fuel: fewUnits}).Run(t.Context(), nil, mostOutput)
	fails(t, err, fault.ExecutionFailed, false, "ran out of fuel", "1000")
	_, err = compile(t, shared, deep.bytes(), wasm.Limits{Fuel: endless}).Run(t.Context(), nil, mostOutput)
	fails(t, err, fault.ExecutionFailed, false, "stack overflow")
	if got := answer(t, compile(t, shared, buffered(echoing).bytes(), wasm.Limits{}), "well"); got != "well" {
		t.Errorf("the next call: %q", got)
	}
}

// A guest that never stops does not keep the garbage collector from its work, and
// so all of Orla.
func TestT37AGuestCannotStopTheHost(t *testing.T) {
	spin := compile(t, shared, buffered(loop, empty, branch, 0, end, unreachable).bytes(), wasm.Limits{Fuel: endless})
	ctx, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		running.Go(func() {
			_, err := spin.Run(ctx, nil, mostOutput)
			fails(t, err, fault.Canceled, false)
		})
	}
	for range 3 {
		runtime.GC() // it would wait for ever
	}
	leave()
	running.Wait()
}

// SPEC-TOOLS 3.7: a module without WASI is given its input in its memory.
func TestT37BuffersInPlaceOfStreams(t *testing.T) {
	m := compile(t, shared, buffered(echoing).bytes(), wasm.Limits{})
	for _, input := range []string{"", "hello", strings.Repeat("x", 100_000)} {
		if got := answer(t, m, input); got != input {
			t.Errorf("got %d bytes; want %d", len(got), len(input))
		}
	}
	_, err := m.Run(t.Context(), make([]byte, 1<<17), mostOutput) // allocate promises what is not there
	fails(t, err, fault.ExecutionFailed, false, "allocate(131072)")
	_, err = m.Run(t.Context(), []byte("four"), 3)
	fails(t, err, fault.ExecutionFailed, false, "more than 3 bytes")
	for at, length := range map[int64]int64{0x20000: 1, 0x1ffff: 2, 0: 0x20001, 0x7fffffff: 0x7fffff} {
		_, err := compile(t, shared, buffered(answering(at, length)).bytes(), wasm.Limits{}).Run(t.Context(), nil, mostOutput)
		fails(t, err, fault.RuntimePolicyInvalid, false, "not in its memory")
	}
}

// SPEC-TOOLS 3.7: `enable_wasi: false` links no WASI, also after another tool used it.
func TestT37WASIIsEachToolsOwn(t *testing.T) {
	r := newRuntime(t, wasm.Options{})
	module := built(t, "echo")
	with := compile(t, r, module, wasm.Limits{WASI: true})
	answer(t, with, "{}")
	_, err := r.Compile(t.Context(), module, wasm.Limits{})
	fails(t, err, fault.RuntimePolicyInvalid, false, "enable_wasi: true", "wasi")
	// One that has no need of it but to answer.
	silent := assembly{types: []funcType{{}}, funcs: []function{{of: 0}}, exports: []export{{"_start", 0, 0}}}
	_, err = r.Compile(t.Context(), silent.bytes(), wasm.Limits{})
	fails(t, err, fault.RuntimePolicyInvalid, false, "enable_wasi: true")
	if got := answer(t, compile(t, r, silent.bytes(), wasm.Limits{WASI: true}), ""); got != "" {
		t.Errorf("got %q", got)
	}
	// One that would call it itself, through a table of its own.
	calls := buffered(i64Const, int64(0))
	calls.imports = []funcImport{{"wasi_snapshot_preview1", "random_get", 0, count(1)}}
	_, err = r.Compile(t.Context(), calls.bytes(), wasm.Limits{})
	fails(t, err, fault.RuntimePolicyInvalid, false, "random_get", "enable_wasi: true")
}

// SPEC-TOOLS 3.7: the named entrypoint is called if it is exported, else _start.
func TestT37TheEntrypoint(t *testing.T) {
	// Each function writes its letter to stdout.
	writing := func(names ...string) assembly {
		a := assembly{
			types:   []funcType{{}, {[]byte{i32, i32, i32, i32}, []byte{i32}}},
			imports: []funcImport{{"wasi_snapshot_preview1", "fd_write", 0, count(1)}},
			memory:  []byte{0, 1},
			data:    "\x10\x00\x00\x00\x01\x00\x00\x00",
			exports: []export{{"memory", 2, 0}},
		}
		for i, name := range names {
			letter := int64(name[len(name)-1])
			a.exports = append(a.exports, export{name, 0, i + 1})
			a.funcs = append(a.funcs, function{of: 0, body: code(
				i32Const, int64(16), i32Const, letter, store, 2, 0,
				i32Const, int64(1), i32Const, int64(0), i32Const, int64(1), i32Const, int64(32), call, 0, drop)})
		}
		return a
	}
	for _, c := range []struct {
		exports []string
		name    string
		want    string
	}{
		{[]string{"_start"}, "", "t"},
		{[]string{"_start", "run"}, "", "n"},
		{[]string{"_start", "run", "another"}, "another", "r"},
		{[]string{"_start", "run"}, "another", "t"}, // and not run, which nobody has named
		{[]string{"run", "_initialize"}, "", "en"},
		{[]string{"_start", "_initialize"}, "", "t"}, // a command is not initialised twice
	} {
		m := compile(t, shared, writing(c.exports...).bytes(), wasm.Limits{WASI: true, Entrypoint: c.name})
		if got := answer(t, m, ""); got != c.want {
			t.Errorf("%v, %q: got %q; want %q", c.exports, c.name, got, c.want)
		}
	}
	_, err := shared.Compile(t.Context(), writing("main", "other").bytes(), wasm.Limits{WASI: true, Entrypoint: "go"})
	fails(t, err, fault.RuntimePolicyInvalid, false, `"go"`, "_start", `"main", "other"`)
	_, err = shared.Compile(t.Context(), writing().bytes(), wasm.Limits{WASI: true})
	fails(t, err, fault.RuntimePolicyInvalid, false, `"run"`, "no function at all")
	odd := buffered(i64Const, int64(0))
	odd.exports[2].index = 0 // allocate's type
	_, err = shared.Compile(t.Context(), odd.bytes(), wasm.Limits{})
	fails(t, err, fault.RuntimePolicyInvalid, false, `"run"`, "(i32, i32) -> i64")
	for without, word := range map[int]string{0: "memory", 1: "allocate"} {
		bare := buffered(i64Const, int64(0))
		bare.exports = append(bare.exports[:without], bare.exports[without+1:]...)
		_, err = shared.Compile(t.Context(), bare.bytes(), wasm.Limits{})
		fails(t, err, fault.RuntimePolicyInvalid, false, word)
	}
	status := assembly{types: []funcType{{nil, []byte{i32}}}, funcs: []function{{of: 0, body: code(i32Const, int64(7))}}, exports: []export{{"run", 0, 0}}}
	_, err = compile(t, shared, status.bytes(), wasm.Limits{WASI: true}).Run(t.Context(), nil, mostOutput)
	fails(t, err, fault.ExecutionFailed, false, "exited with code 7")
}

// A module that needs something that Orla does not have is refused, with the reason.
func TestT37ModulesThatCannotBe(t *testing.T) {
	plain := buffered(i64Const, int64(0))
	imports := func(module string, kind byte, desc ...byte) []byte {
		a := plain
		a.imports = []funcImport{{module, "thing", kind, desc}}
		return a.bytes()
	}
	for name, c := range map[string]struct {
		module []byte
		words  []string
	}{
		"nothing":              {nil, nil},
		"text":                 {[]byte("(module)"), nil},
		"a component":          {[]byte("\x00asm\x0d\x00\x01\x00"), nil},
		"an ELF":               {[]byte("\x7fELF\x02\x01\x01\x00"), nil},
		"the head alone":       {[]byte("\x00asm\x01\x00\x00\x00"), []string{"no function at all"}},
		"half of one":          {plain.bytes()[:60], nil},
		"too large":            {make([]byte, wasm.MaxModule+1), []string{"67108865 bytes"}},
		"a function of env":    {imports("env", 0, 2), []string{`"thing"`, `"env"`}},
		"a memory of env":      {imports("env", 2, 0, 1), []string{"thing"}},
		"a table of env":       {imports("env", 1, funcref, 0, 1), []string{"thing"}},
		"a global of env":      {imports("env", 3, i32, 0), []string{"thing"}},
		"an older WASI":        {imports("wasi_unstable", 0, 2), []string{"wasip1"}},
		"Orla's own":           {imports("orla:fuel", 0, 2), []string{"reserved"}},
		"a type that is none":  {buffered(localGet, 9, i64Const, int64(0)).bytes(), nil},
		"nothing on the stack": {buffered(drop, i64Const, int64(0)).bytes(), nil},
		"2^32-1 types":         {[]byte("\x00asm\x01\x00\x00\x00\x01\x06\xff\xff\xff\xff\x0f\x60"), nil},
		"2^32-1 parameters":    {[]byte("\x00asm\x01\x00\x00\x00\x01\x08\x01\x60\xff\xff\xff\xff\x0f\x00"), nil},
		"2^32-1 locals":        {buffered2(t, "\xff\xff\xff\xff\x0f\x7f"), nil},
		"a section of 4 GiB":   {[]byte("\x00asm\x01\x00\x00\x00\x0a\xff\xff\xff\xff\x0f"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := shared.Compile(t.Context(), c.module, wasm.Limits{})
			fails(t, err, fault.RuntimePolicyInvalid, false, append(c.words, "cannot be run")...)
			if f := fault.From(err); f != nil && (len(f.Reason) > 500 || strings.Contains(f.Reason, "\n")) {
				t.Errorf("the reason is %q", f.Reason)
			}
		})
	}
}

// buffered2 is a module whose function has one group of locals.
func buffered2(t *testing.T, locals string) []byte {
	t.Helper()
	a := buffered(i64Const, int64(0))
	a.funcs[1].locals = nil
	module := a.bytes()
	i := strings.LastIndex(string(module), "\x00\x42\x00\x0b")
	if i < 0 {
		t.Fatal("the function is not where it should be")
	}
	body := "\x01" + locals + "\x42\x00\x0b"
	// The section of code has allocate's body of 5 or so bytes before it.
	head := module[:i-1]
	section := strings.LastIndex(string(head), "\x0a")
	before := module[section+3 : i-1]
	content := "\x02" + string(before) + string(rune(len(body))) + body
	return []byte(string(module[:section]) + "\x0a" + string(rune(len(content))) + content)
}

// SPEC-TOOLS 3.7: a fresh instance for each call, whatever runs beside it.
func TestT37EachCallHasAnInstanceOfItsOwn(t *testing.T) {
	// It counts its calls at 8 in memory, and answers with the count and its input.
	counting := buffered(
		i32Const, int64(8), i32Const, int64(8), load, 2, 0, i32Const, int64(1), i32Add, store, 2, 0,
		i32Const, int64(8), load, 2, 0, i32Const, int64(1), i32Sub, ifThen, empty, unreachable, end,
		echoing)
	m := compile(t, shared, counting.bytes(), wasm.Limits{})
	var running sync.WaitGroup
	for i := range 50 {
		running.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("call %d of %d", j, i)
				if out, err := m.Run(t.Context(), []byte(want), mostOutput); err != nil || string(out.Stdout) != want {
					t.Errorf("got %q, %v; want %q", out.Stdout, err, want)
				}
			}
		})
	}
	running.Wait()
}

// One compilation serves all who ask for it, and does not end with who asked first.
func TestT37AModuleIsCompiledOnce(t *testing.T) {
	r := newRuntime(t, wasm.Options{})
	gone, leave := context.WithCancel(t.Context())
	leave()
	module := built(t, "echo")
	if _, err := r.Compile(gone, module, wasm.Limits{WASI: true}); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("got %v; want the caller's leave", err)
	}
	late, cancel := context.WithTimeoutCause(t.Context(), 0, fault.New(fault.Timeout, "it took too long"))
	defer cancel()
	_, err := r.Compile(late, module, wasm.Limits{WASI: true})
	fails(t, err, fault.Timeout, true, "not compiled before the deadline")
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() { answer(t, compile(t, r, module, wasm.Limits{WASI: true}), "{}") })
	}
	asking.Wait()
}

// What is compiled is bounded: who used it longest ago makes room, once its calls are over.
func TestT37CompiledModulesMakeRoom(t *testing.T) {
	r := newRuntime(t, wasm.Options{MaxCached: 1})
	spin := compile(t, r, buffered(loop, empty, branch, 0, end, unreachable).bytes(), wasm.Limits{Fuel: endless})
	ctx, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, err := spin.Run(ctx, nil, mostOutput)
		fails(t, err, fault.Canceled, false)
	})
	for deadline := time.Now().Add(time.Minute); r.Running() == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it does not run")
		}
	}
	echo := compile(t, r, buffered(echoing).bytes(), wasm.Limits{})
	if got := answer(t, echo, "well"); got != "well" {
		t.Errorf("got %q", got)
	}
	_, err := spin.Run(t.Context(), nil, mostOutput)
	if !errors.Is(err, wasm.ErrEvicted) {
		t.Errorf("got %v; want ErrEvicted", err)
	}
	leave()
	running.Wait()
	if got := answer(t, echo, "well"); got != "well" {
		t.Errorf("got %q", got)
	}
}

// Close waits for no call, and calls end well.
func TestT37CloseWhileAModuleRuns(t *testing.T) {
	r := wasm.NewRuntime(wasm.Options{})
	spin := compile(t, r, buffered(loop, empty, branch, 0, end, unreachable).bytes(), wasm.Limits{Fuel: endless})
	ctx, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, err := spin.Run(ctx, nil, mostOutput)
		fails(t, err, fault.Canceled, false)
	})
	for r.Running() == 0 {
		runtime.Gosched()
	}
	r.Close()
	leave()
	running.Wait()
	_, err := spin.Run(t.Context(), nil, mostOutput)
	fails(t, err, fault.NotReady, true)
	_, err = r.Compile(t.Context(), buffered(echoing).bytes(), wasm.Limits{})
	fails(t, err, fault.NotReady, true)
}

// Close does not hang on a module that takes a minute to compile, nor do those who
// wait for it.
func TestT37CloseWhileAModuleIsCompiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := wasm.NewRuntime(wasm.Options{})
		done := r.Compiling()
		defer done()
		r.Close() // a bubble ends a wait that has no end
		_, err := r.Compile(t.Context(), buffered(echoing).bytes(), wasm.Limits{})
		fails(t, err, fault.NotReady, true)
	})
}
