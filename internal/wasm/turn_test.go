package wasm_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/internal/wasm"
)

// spinning is a module that never ends. It does first what is given.
func spinning(first ...any) []byte {
	return buffered(append(first, loop, empty, branch, 0, end, unreachable)...).bytes()
}

// running runs a module for the calls of some owners, until the returned function is called.
func running(t *testing.T, m *wasm.Module, input string, owners ...turns.Owner) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for _, owner := range owners {
		calls.Go(func() {
			_, err := m.For(owner).Run(ctx, []byte(input), mostOutput)
			fails(t, err, fault.Canceled, false)
		})
	}
	return func() {
		cancel()
		calls.Wait()
	}
}

// answersSoon runs a module that needs a moment.
func answersSoon(t *testing.T, m *wasm.Module) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := m.Run(ctx, nil, mostOutput); err != nil {
		t.Error(err)
	}
}

// SPEC S2: a module that computes keeps a processor from all of Orla, so that modules never
// have the last one.
func TestS2ModulesLeaveAProcessor(t *testing.T) {
	r := newRuntime(t, wasm.Options{})
	m := compile(t, r, spinning(), wasm.Limits{Fuel: endless})
	most := max(1, runtime.GOMAXPROCS(0)-1)
	leave := running(t, m, "", make([]turns.Owner, most+3)...)
	defer leave()
	testkit.Eventually(t, "three calls wait", func() bool {
		n, waiting := r.Compute(0)
		return n == most && waiting == 3
	})
}

// SPEC N2: however long the modules of one caller compute, those of another one have their turn.
func TestN2ModulesComputeInTurn(t *testing.T) {
	r := newRuntime(t, wasm.Options{})
	r.Compute(1)
	spin := compile(t, r, spinning(), wasm.Limits{Fuel: endless})
	least := compile(t, r, buffered(echoing).bytes(), wasm.Limits{})
	greedy := turns.Owner{Caller: "greedy", Session: "1"}
	leave := running(t, spin, "", greedy, greedy, greedy)
	defer leave()
	testkit.Eventually(t, "they compute", func() bool { n, waiting := r.Compute(0); return n == 1 && waiting == 2 })
	answersSoon(t, least.For(turns.Owner{Caller: "other", Session: "2"}))
}

// SPEC N2: a module that waits for the clock keeps no other from computing.
func TestN2AModuleThatSleepsHasNoTurn(t *testing.T) {
	r := newRuntime(t, wasm.Options{})
	r.Compute(1)
	least := compile(t, r, buffered(echoing).bytes(), wasm.Limits{})
	m := compile(t, r, built(t, "rogue"), wasm.Limits{WASI: true, Fuel: endless})
	leave := running(t, m, "sleep", turns.Owner{Session: "1"})
	defer leave()
	testkit.Eventually(t, "it sleeps", func() bool { n, _ := r.Compute(0); return r.Running() == 1 && n == 0 })
	answersSoon(t, least)
}

// A call that ends while it waits for its turn says so, and has not begun.
func TestT37TheDeadlineEndsTheWaitForATurn(t *testing.T) {
	r := newRuntime(t, wasm.Options{})
	r.Compute(1)
	m := compile(t, r, spinning(), wasm.Limits{Fuel: endless})
	leave := running(t, m, "", turns.Owner{})
	defer leave()
	testkit.Eventually(t, "it computes", func() bool { n, _ := r.Compute(0); return n == 1 })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, fault.New(fault.Timeout, "it took too long"))
	defer cancel()
	_, err := m.Run(ctx, nil, mostOutput)
	fails(t, err, fault.Timeout, true, "no processor became free", "1 modules")
	if !fault.From(err).Unsent {
		t.Error("it counts as sent")
	}
}

// SPEC S2: all calls together have so much memory, and a single one of them may go on beyond.
func TestS2AllMemoryIsBounded(t *testing.T) {
	needs.Time(t, "waits for seconds")
	const grown = 5 << 20 // none of them has room for it
	m := compile(t, newRuntime(t, wasm.Options{TotalMemory: 4 << 20}), spinning(i32Const, int64(grown>>16), memoryGrow, 0, drop), wasm.Limits{Fuel: endless})
	for within := 4 * time.Second; ; within *= 2 { // one of them has had its turn by then, unless the machine is busy
		ctx, cancel := context.WithTimeoutCause(t.Context(), within, fault.New(fault.Timeout, "it took too long"))
		var calls sync.WaitGroup
		peaks := make([]int64, 4)
		for i := range peaks {
			calls.Go(func() {
				out, err := m.For(turns.Owner{Session: string(rune('a' + i))}).Run(ctx, nil, mostOutput)
				fails(t, err, fault.Timeout, true)
				peaks[i] = out.MemoryPeak
			})
		}
		calls.Wait()
		cancel()
		slices.Sort(peaks)
		if peaks[2] < grown && peaks[3] >= grown {
			return
		}
		if peaks[2] >= grown || within > testkit.Patience {
			t.Fatalf("the calls had %v bytes; want one of them to have grown", peaks)
		}
	}
}

// The operator may give all of them more while they wait.
func TestH2AllMemoryGrowsWithTheConfiguration(t *testing.T) {
	r := newRuntime(t, wasm.Options{TotalMemory: 1})
	m := compile(t, r, buffered(i32Const, int64(16), memoryGrow, 0, drop, i64Const, int64(0)).bytes(), wasm.Limits{})
	spin := compile(t, r, spinning(i32Const, int64(16), memoryGrow, 0, drop), wasm.Limits{Fuel: endless})
	leave := running(t, spin, "", turns.Owner{Session: "1"}, turns.Owner{Session: "2"})
	defer leave()
	testkit.Eventually(t, "they run", func() bool { return r.Running() == 2 })
	r.SetTotalMemory(1 << 30)
	answersSoon(t, m.For(turns.Owner{Session: "3"}))
}
