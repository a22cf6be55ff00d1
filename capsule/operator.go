package capsule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// errHeld is the cause with which the context of a process ends when an operator stops it.
var errHeld = errors.New("stopped by an operator")

// order is the last request of an operator (SPEC D9, J1). It is never changed, only replaced.
type order struct {
	n      int // its number; 0 before the first order
	reason string
	held   bool // the capsule stays STOPPED until the next order
	after  int  // a process that was started before the order with this number has to end

	changed chan struct{} // closed when a newer order replaces this one
}

// orders passes the requests of operators to Serve's goroutine, which follows them.
type orders struct {
	last atomic.Pointer[order]

	mu        sync.Mutex              // one order at a time; guards the field that follows
	interrupt context.CancelCauseFunc // ends the life of the present process; nil before the first
}

func (o *orders) init() { o.last.Store(&order{changed: make(chan struct{})}) }

// giveLocked adds an order. With fresh, the present process has to end.
func (o *orders) giveLocked(reason string, held, fresh bool) *order {
	old := o.last.Load()
	next := &order{n: old.n + 1, reason: reason, held: held, after: old.after, changed: make(chan struct{})}
	if fresh {
		next.after = next.n
	}
	o.last.Store(next)
	if held && o.interrupt != nil {
		o.interrupt(errHeld) // whatever it waits for
	}
	close(old.changed)
	return next
}

// attach returns a context for one process, which ends with the cause errHeld when the
// capsule is held, and the last order before it.
func (o *orders) attach(ctx context.Context) (context.Context, *order, context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, end := context.WithCancelCause(ctx)
	o.interrupt = end
	return ctx, o.last.Load(), func() { end(nil) }
}

// give adds an order, and saves whether the capsule is held.
func (c *Capsule) give(reason string, held, fresh bool) *order {
	c.opts.Packages.Retry()
	c.log.Info("operator request", "tool", c.tool.Name, "reason", reason)
	c.orders.mu.Lock() // also while the hold is saved, so that it is that of the last order
	defer c.orders.mu.Unlock()
	c.opts.Holds.Save(c.tool, held, c.log)
	return c.orders.giveLocked(reason, held, fresh)
}

// recall turns a saved hold into an order. It may come from an earlier manifest of the
// capsule, or from an earlier run of Orla.
func (c *Capsule) recall() {
	c.orders.mu.Lock()
	defer c.orders.mu.Unlock()
	held, known := c.opts.Holds.Load(c.tool)
	switch was := c.orders.last.Load().held; {
	case !known || held == was:
	case held:
		c.orders.giveLocked(errHeld.Error(), true, true)
	default:
		c.orders.giveLocked("started by an operator", false, false)
	}
}

// Stop stops the capsule, and returns when it is STOPPED. It stays so until Start or Restart
// is called, on this Capsule or on another one of the same manifest. ctx bounds only the
// waiting.
func (c *Capsule) Stop(ctx context.Context) error {
	o := c.give(errHeld.Error(), true, true)
	return c.await(ctx, func(s *status) (reached bool, err error) {
		switch {
		case s.starts == byNobody && s.state != Stopping: // one that never began stays CREATED
			return true, c.notServed()
		case s.heard < o.n || s.state == Stopping:
			return false, nil
		case s.state == Stopped:
			return true, nil
		}
		return true, fault.New(fault.NotReady, "%s was started again by an operator in the meantime", c.tool.Name)
	})
}

// Start ends a stop by an operator. If the capsule is not READY, it is started at once, and
// its failures are counted from 0. Start returns when the capsule is READY, or why it does
// not become so. ctx bounds only the waiting.
func (c *Capsule) Start(ctx context.Context) error {
	return c.awaitReady(ctx, c.give("started by an operator", false, false))
}

// Restart is like Start, but always with a new process.
func (c *Capsule) Restart(ctx context.Context) error {
	return c.awaitReady(ctx, c.give("restarted by an operator", false, true))
}

// awaitReady returns when a process that o allows is READY, or when the start that o
// requested has failed.
func (c *Capsule) awaitReady(ctx context.Context, o *order) error {
	return c.await(ctx, func(s *status) (reached bool, err error) {
		switch {
		case s.starts == byNobody:
			return true, c.notServed()
		case s.state == Ready:
			switch {
			case s.order >= o.after:
				return true, nil
			case s.refused == nil || s.tried < o.after:
				return false, nil // the process that o requested is still to come
			case o.n == o.after:
				return true, s.refused
			}
			return true, nil // an earlier restart failed, and the old process is READY
		case s.heard < o.n || s.state != Crashed && s.state != Stopped:
			return false, nil // Serve's goroutine has yet to follow it
		case s.state == Crashed && s.next.IsZero():
			return false, nil // it is about to be STOPPED
		case s.starts == byCall && s.cause == nil:
			return true, nil // it was READY, and waits to be called again
		}
		return true, c.notReady(s)
	})
}

// await waits for a status that ends the waiting.
func (c *Capsule) await(ctx context.Context, ends func(*status) (reached bool, err error)) error {
	for {
		s := c.status.Load()
		if reached, err := ends(s); reached {
			return err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			cause := context.Cause(ctx)
			s = c.status.Load()
			return fault.Wrap(fault.From(cause).Code, cause, "%s is still %s (%s); the request goes on", c.tool.Name, s.state, s.reason)
		}
	}
}

// notServed is the error of a wait for a capsule that is not served any more.
func (c *Capsule) notServed() error {
	return fault.Wrap(fault.NotReady, peer.ErrGone, "%s is not served any more: its manifest has changed or gone, or Orla stops", c.tool.Name)
}

// awaitStart waits until a process has to be started, and reports true then; false when ctx
// ends. It waits while the capsule is held, and while a lazy capsule has no call.
func (c *Capsule) awaitStart(ctx context.Context) bool {
	for ctx.Err() == nil {
		o, s := c.orders.last.Load(), c.status.Load()
		switch {
		case o.held:
			if o != c.seen || s.starts != byOperator {
				c.rest(o)
			}
		case o != c.seen:
			c.because = o.reason
			c.restarts.Forgive()
			return true
		case s.starts != byCall:
			return true
		}
		if c.awaitChange(ctx, o, s) {
			return true
		}
	}
	return false
}

// awaitChange waits until the order or the status has to be looked at again. It reports
// whether a process has to be started: a call needs it, or the next start is due.
func (c *Capsule) awaitChange(ctx context.Context, o *order, s *status) bool {
	var due <-chan time.Time
	if !s.next.IsZero() {
		due = time.After(time.Until(s.next))
	}
	select {
	case <-c.wake:
		return !o.held
	case <-due:
		c.because = "it is tried again"
		return true
	case <-c.files.Changed(): // the next process has the change anyway
	case <-o.changed:
	case <-ctx.Done():
	}
	return false
}

// rest makes a capsule without a process STOPPED, as the order o says.
func (c *Capsule) rest(o *order) {
	c.seen = o
	switch c.status.Load().state {
	case Stopped:
		c.amend(func(s *status) {
			*s = status{state: Stopped, since: s.since, reason: o.reason, starts: byOperator, heard: o.n, changed: s.changed}
		})
		return
	case Reloading:
		c.become(status{state: Stopping, reason: o.reason, starts: byOperator})
	default:
	}
	c.become(status{state: Stopped, reason: o.reason, starts: byOperator})
}

// liveUntilHeld runs one process until it ends or the capsule is held.
func (c *Capsule) liveUntilHeld(ctx context.Context) ending {
	ctx, o, release := c.orders.attach(ctx)
	defer release()
	if o.held {
		return ending{}
	}
	c.seen = o
	return c.live(ctx)
}

// follow follows an order while the capsule has a process that was started after the order
// with the number n. It returns a request for another process, if the order requires one.
func (c *Capsule) follow(o *order, n int) *trigger {
	switch {
	case n >= o.after:
		c.seen = o
		return nil
	case o.held:
		return nil // the context of the process ends
	}
	return &trigger{o.reason, time.Now()}
}

// refuse publishes why a process that was to replace another did not start.
func (c *Capsule) refuse(s successor) {
	text := fmt.Sprintf("%s: the new process does not start, and the old one serves on: %s", c.tool.Name, fault.ReasonOf(s.err))
	if s.stderr != "" {
		text += "; its last lines on stderr:\n" + s.stderr
	}
	c.amend(func(now *status) {
		now.refused, now.tried = fault.New(fault.StartFailed, "%s", text), s.order
	})
}
