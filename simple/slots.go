package simple

import (
	"context"
	"runtime"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/turns"
)

// Slots bounds how many calls run something on this machine at once. Waiting calls take turns, by
// caller and then by session (internal/call/turns).
type Slots struct {
	places *turns.Queue
	shared bool // see NewShared
}

// newSlots returns Slots with n places.
func newSlots(n int) *Slots { return &Slots{places: turns.NewQueue(n, 0)} }

// NewShared returns Slots with n places, of which one caller does not take all if there are others:
// it may start half as many calls at a time as there are processors. So a call of another caller
// runs next to a few processes, not to n. A call counts only for the first moment after its start.
func NewShared(n int) *Slots {
	return &Slots{places: turns.NewAging(n, max(1, runtime.NumCPU()/2), moment), shared: true}
}

// moment is how long a call counts towards the number that its caller may start at a time: about the
// start-up time of a script.
const moment = 25 * time.Millisecond

// Resize changes the number of places to n. Calls that have a place keep it, even if there are fewer
// now.
func (s *Slots) Resize(n int) { s.places.Resize(n) }

// Waiting returns how many calls wait for a place.
func (s *Slots) Waiting() int { return s.places.Waiting() }

// Take waits for a place until ctx ends. give returns the place; it must be called once. On nil
// Slots there is always a place.
func (s *Slots) Take(ctx context.Context, owner turns.Owner) (give func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	ctx, end := rejudge.While(ctx)
	defer end()
	if s.shared {
		var place *turns.Brief
		if place, err = s.places.TakeBriefly(ctx, owner); err == nil {
			return place.Give, nil
		}
	} else if err = s.places.Take(ctx, owner); err == nil {
		return func() { s.places.Give(owner) }, nil
	}
	if fault.CodeOf(err) == fault.Timeout {
		return nil, fault.Wrap(fault.Timeout, err, "no place to run became free before the deadline: %d calls run at once at most", s.places.Limit())
	}
	return nil, fault.From(err)
}
