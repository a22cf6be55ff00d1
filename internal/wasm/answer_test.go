package wasm_test

import (
	"context"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/internal/wasm"
)

// SPEC S2: an answer that a module leaves in its memory counts before it is copied, until the
// call lets go of it. A call that waits for room keeps no processor, and ends with its context.
func TestS2AnAnswerInMemoryIsCounted(t *testing.T) {
	const size = 3 << 20
	r := newRuntime(t, wasm.Options{})
	large := buffered(answering(0, size))
	large.memory = []byte{0, size >> 16}
	m := compile(t, r, large.bytes(), wasm.Limits{})
	room := turns.NewRoom(8 << 20)
	all := room.Free()
	ctx, release := room.Open(t.Context(), turns.Owner{Caller: "one"})
	if out, err := m.Run(ctx, nil, mostOutput); err != nil || len(out.Stdout) != size || all-room.Free() < size-turns.Little {
		t.Errorf("an answer of %d bytes, %v; %d bytes are held", len(out.Stdout), err, all-room.Free())
	}
	release()

	for range 2 { // the second goes beyond the limit, and a third one waits
		ctx, release := room.Open(t.Context(), turns.Owner{Caller: "other"})
		defer release()
		if err := turns.AccountOf(ctx).Need(ctx, all+turns.Little); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ctx, release = room.Open(ctx, turns.Owner{Caller: "one"})
	defer release()
	done := make(chan error, 1)
	go func() {
		_, err := m.Run(ctx, nil, mostOutput)
		done <- err
	}()
	testkit.Eventually(t, "it waits", func() bool { n, waiting := r.Compute(0); return r.Running() == 1 && n+waiting == 0 })
	answersSoon(t, compile(t, r, buffered(echoing).bytes(), wasm.Limits{}))
	cancel()
	fails(t, <-done, fault.Canceled, false)
}
