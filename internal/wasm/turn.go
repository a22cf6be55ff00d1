package wasm

import (
	"context"
	"runtime"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// turnLength is how long a call computes if others wait for its processor.
const turnLength = 5 * time.Millisecond

// processors is how many modules compute at once, and the largest number that are compiled at once:
// all of Go's processors but one. A module that computes keeps a processor from everything else in
// Orla, except when it yields.
func processors() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// turn is a call's place among those that compute. The call gives it back while it waits for
// anything, and waiting calls take turns. Only the call's goroutine may use it.
type turn struct {
	places *turns.Queue
	owner  turns.Owner
	has    bool
	since  time.Time // when it was taken
	only   bool      // Go has no other processor
}

// begin waits until there is a place or ctx ends.
func (t *turn) begin(ctx context.Context) error {
	if err := t.places.Take(ctx, t.owner); err != nil {
		if fault.CodeOf(err) == fault.Timeout {
			return fault.Wrap(fault.Timeout, err, "no processor became free before the deadline: %d modules compute at once at most", t.places.Limit())
		}
		return fault.From(err)
	}
	t.has, t.since = true, time.Now()
	return nil
}

// end gives the place back, if the call has it.
func (t *turn) end() {
	if t.has {
		t.has = false
		t.places.Give(t.owner)
	}
}

// wait runs a function that may take long and needs no processor. Afterwards the call has a place
// again, unless ctx has ended.
func (t *turn) wait(ctx context.Context, wait func() error) error {
	t.end()
	if err := wait(); err != nil {
		return err
	}
	return t.begin(ctx)
}

// room waits until n more bytes of the answer are reserved. It does nothing if answers are not
// counted.
func (t *turn) room(ctx context.Context, n int64) error {
	account := turns.AccountOf(ctx)
	need := func() error { return account.Need(ctx, n) }
	if account.Covers(n) {
		return need()
	}
	return t.wait(ctx, need)
}

// pass lets others compute, if any are waiting and the call's turn is over.
func (t *turn) pass(ctx context.Context) error {
	if t.only {
		runtime.Gosched()
	}
	if t.has && (t.places.Waiting() == 0 || time.Since(t.since) < turnLength) {
		return nil
	}
	return t.wait(ctx, func() error { return nil })
}
