package mcpbridge

import (
	"context"

	"github.com/orla-project/orla/internal/call/turns"
)

// takeTurn waits for the one place of a queue, the lock for telling peers something. The wait counts
// among the requests that wait, since its client may have left. An error says that the caller does not
// have the lock.
func (b *Bridge) takeTurn(ctx context.Context, t *turns.Queue, owner turns.Owner) error {
	if t.Try(owner) {
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
	if t.Take(ctx, owner) == nil || t.Try(owner) { // both may have been ready
		return nil
	}
	return context.Cause(ctx)
}

// tellInTurn calls say, with the lock, for as long as there is news. If it does not get the
// lock, whoever has it looks for news again afterwards. The wait counts as owner's.
func (b *Bridge) tellInTurn(ctx context.Context, t *turns.Queue, owner turns.Owner, news func() bool, say func() error) error {
	inTurn := func() error {
		defer t.Give(owner) // also after a panic
		return say()
	}
	for news() && b.takeTurn(ctx, t, owner) == nil {
		if err := inTurn(); err != nil {
			return err
		}
	}
	return nil
}

// atOnce returns a context with which takeTurn does not wait: whoever has the lock looks for news afterwards.
func atOnce(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	end()
	return ctx
}
