package wasm

import (
	"context"
	"runtime"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// turnLength is how long a call computes while others wait for its processor.
const turnLength = 5 * time.Millisecond

// processors is how many modules compute at once, and how many are compiled at most: all that
// Go has but one. A module that computes keeps a processor from everything else in Orla, but for
// the moments in which it yields.
func processors() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// turn is a call's place among those that compute. It is given back while the call waits
// for anything, and goes to the callers that wait for it in turn. It is used by the call's
// goroutine alone.
type turn struct {
	places *turns.Queue
	owner  turns.Owner
	has    bool
	since  time.Time // when it was taken
	only   bool      // Go has no other processor
}

// begin takes the place, and waits for it until ctx ends.
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

// wait does what may take long and needs no processor. The call has its place again
// afterwards, unless ctx has ended.
func (t *turn) wait(ctx context.Context, wait func() error) error {
	t.end()
	if err := wait(); err != nil {
		return err
	}
	return t.begin(ctx)
}

// room waits until the call may have n bytes more of an answer. It does nothing where answers
// are not counted.
func (t *turn) room(ctx context.Context, n int64) error {
	account := turns.AccountOf(ctx)
	need := func() error { return account.Need(ctx, n) }
	if account.Covers(n) {
		return need()
	}
	return t.wait(ctx, need)
}

// pass lets others compute, if there are any and the call did for long enough.
func (t *turn) pass(ctx context.Context) error {
	if t.only {
		runtime.Gosched()
	}
	if t.has && (t.places.Waiting() == 0 || time.Since(t.since) < turnLength) {
		return nil
	}
	return t.wait(ctx, func() error { return nil })
}
