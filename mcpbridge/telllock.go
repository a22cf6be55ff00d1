package mcpbridge

import (
	"context"

	"github.com/orla-project/orla/internal/call/turns"
)

// tellLock lets one goroutine at a time tell peers something, so that the last message that
// they get is the current one. Those who wait for it are served in turn by caller (SPEC N2).
type tellLock struct {
	q *turns.Queue // of one place
}

func newTellLock() tellLock { return tellLock{turns.NewQueue(1, 0)} }

// take waits for the lock until ctx ends, and reports whether the caller has it.
func (t tellLock) take(ctx context.Context, owner turns.Owner) bool {
	return t.q.Take(ctx, owner) == nil || t.q.Try(owner) // both may have been ready
}

// try takes the lock if nobody has it.
func (t tellLock) try(owner turns.Owner) bool { return t.q.Try(owner) }

// give gives back the lock that owner has taken.
func (t tellLock) give(owner turns.Owner) { t.q.Give(owner) }

// takeTurn waits for the lock for an owner. The wait counts among the requests that wait, since
// its client may have left. An error says that the caller does not have the lock.
func (b *Bridge) takeTurn(ctx context.Context, t tellLock, owner turns.Owner) error {
	if t.try(owner) {
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
	if !t.take(ctx, owner) {
		return context.Cause(ctx)
	}
	return nil
}

// tellInTurn calls say, with the lock, for as long as there is news. If it does not get the
// lock, whoever has it looks for news again afterwards. The wait counts as owner's.
func (b *Bridge) tellInTurn(ctx context.Context, t tellLock, owner turns.Owner, news func() bool, say func() error) error {
	for news() && b.takeTurn(ctx, t, owner) == nil {
		err := say()
		t.give(owner)
		if err != nil {
			return err
		}
	}
	return nil
}
