package rpc

import (
	"context"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// Rest waits for a time in which the other side is not read, because it says too much of its own accord. Where a call of
// another caller than the one that it works for is in flight, or begins, Rest returns at once, with what is left of the
// time: the answer may stand behind what is not read. If the other side has ever worked for several callers, any call is
// one of another caller.
func (c *Conn) Rest(d time.Duration) (left time.Duration) {
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		ctx, cancel := context.WithCancelCause(context.Background())
		if !c.mayRest(cancel) {
			cancel(nil)
			return d
		}
		select {
		case <-time.After(d):
		case <-c.over:
			d = 0
		case <-ctx.Done(): // by a call, which may be of the same caller
		}
		c.goOn()
		cancel(nil)
		if d == 0 {
			break
		}
	}
	return 0
}

// mayRest begins a wait of the reader, as standStill does, for whichever caller the other side works.
func (c *Conn) mayRest(end context.CancelCauseFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tenant turns.Owner
	for _, p := range c.calls.pending {
		its := p.Owner.Tenant()
		switch {
		case p.own, p.standing:
		case c.served.tenants, tenant != turns.Owner{} && its != tenant:
			return false
		default:
			tenant = its
		}
	}
	c.still = still{tenant, end}
	return true
}
