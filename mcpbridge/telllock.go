package mcpbridge

import (
	"context"

	"github.com/orla-project/orla/internal/call/turns"
)

// tellLock lets one at a time tell peers something, so that what they are told last
// is what is true. It holds a token while somebody does.
type tellLock chan struct{}

func newTellLock() tellLock { return make(tellLock, 1) }

// take waits for the turn until ctx ends, and reports whether the caller has it.
func (t tellLock) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	select {
	case t <- struct{}{}: // it was free as well
		return true
	default:
		return false
	}
}

// try takes the turn if nobody has it.
func (t tellLock) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t tellLock) give() { <-t }

// takeTurn takes a turn for an owner. One that waits for it counts among the calls in flight,
// since its client may have left: an error says that it does not have the turn.
func (b *Bridge) takeTurn(ctx context.Context, t tellLock, owner turns.Owner) error {
	if t.try() {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, leave, err := b.catalog.Waiting(ctx, owner)
	if err != nil {
		return err
	}
	defer leave()
	if !t.take(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

// tellInTurn calls say in turn for as long as there is news. Who does not get the turn is
// heard all the same: who has it looks again afterwards. It counts as owner's.
func (b *Bridge) tellInTurn(ctx context.Context, t tellLock, owner turns.Owner, news func() bool, say func() error) error {
	for news() && b.takeTurn(ctx, t, owner) == nil {
		err := say()
		t.give()
		if err != nil {
			return err
		}
	}
	return nil
}
