package wasm_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/internal/wasm"
)

// SPEC S2: a module counts from when it is read until it is compiled, also when its call does not
// wait for that.
func TestS2AModuleCountsUntilItIsCompiled(t *testing.T) {
	const size = 1 << 20
	r := newRuntime(t, wasm.Options{})
	open := make(chan struct{})
	r.Gate(open)
	all := r.Loading()
	module := slices.Concat(buffered(echoing).bytes(), section(0, slices.Concat(text("x"), make([]byte, size))))
	read := func(ctx context.Context) ([]byte, error) {
		return module, turns.AccountOf(ctx).Need(ctx, int64(len(module)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.Load(ctx, turns.Owner{Caller: "one"}, turns.Owner{Session: "here"}, read, wasm.Limits{})
		done <- err
	}()
	testkit.Eventually(t, "it is compiled", func() bool { n, _ := r.Compilations(); return n == 1 })
	cancel()
	fails(t, <-done, fault.Canceled, false)
	if held := all - r.Loading(); held < size-turns.Little {
		t.Errorf("it holds %d bytes", held)
	}
	close(open)
	testkit.Eventually(t, "it gives them back", func() bool { return r.Loading() == all })

	m, err := r.Load(t.Context(), turns.Owner{}, turns.Owner{Session: "here"}, read, wasm.Limits{})
	if err != nil || answer(t, m, "well") != "well" || r.Loading() != all {
		t.Errorf("what is compiled: %v; %d of %d bytes are free", err, r.Loading(), all)
	}
	gone := errors.New("it is gone")
	_, err = r.Load(t.Context(), turns.Owner{}, turns.Owner{}, func(context.Context) ([]byte, error) { return nil, gone }, wasm.Limits{})
	if !errors.Is(err, gone) {
		t.Errorf("what cannot be read: %v", err)
	}
}
