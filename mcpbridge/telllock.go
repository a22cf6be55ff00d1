package mcpbridge

import (
	"context"

	"github.com/orla-project/orla/internal/call/turns"
)

// tellLock lets one goroutine at a time tell peers something, so that the last message that
// they get is the current one. It holds a token while it is locked.
type tellLock chan struct{}

func newTellLock() tellLock { return make(tellLock, 1) }

// take waits for the lock until ctx ends, and reports whether the caller has it.
func (t tellLock) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	select {
	case t <- struct{}{}: // both were ready
		return true
	default:
		return false
	}
}

// try takes the lock if nobody has it.
func (t tellLock) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t tellLock) give() { <-t }

// takeTurn waits for the lock for an owner. The wait counts among the requests that wait, since
// its client may have left. An error says that the caller does not have the lock.
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

// tellInTurn calls say, with the lock, for as long as there is news. If it does not get the
// lock, whoever has it looks for news again afterwards. The wait counts as owner's.
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
