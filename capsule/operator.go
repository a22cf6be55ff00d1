package capsule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/capsule/restarts"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// errHeld is why the life of a process ends that is stopped by an operator.
var errHeld = errors.New("stopped by an operator")

// order is what was last asked of a capsule by an operator (SPEC D9, J1). It is never
// changed, only replaced.
type order struct {
	n      int // it is the nth; the 0th is none
	reason string
	held   bool // the capsule is to be STOPPED until the next order
	after  int  // a process that was started before the after-th order is to go

	changed chan struct{} // closed when a newer order replaces this one
}

// orders brings what is asked by an operator to Serve's goroutine, which follows it.
type orders struct {
	last atomic.Pointer[order]

	mu        sync.Mutex              // one order at a time; guards the field that follows
	interrupt context.CancelCauseFunc // ends the life of the present process; nil before the first
}

func (o *orders) init() { o.last.Store(&order{changed: make(chan struct{})}) }

// giveLocked makes an order the last one. One that is fresh does away with the
// process that there is.
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

// attach returns a context for the life of a process, which ends with the cause
// errHeld when the capsule is held, and the last order before that life.
func (o *orders) attach(ctx context.Context) (context.Context, *order, context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, end := context.WithCancelCause(ctx)
	o.interrupt = end
	return ctx, o.last.Load(), func() { end(nil) }
}

// give has the capsule do what an operator asks, and remembers a hold.
func (c *Capsule) give(reason string, held, fresh bool) *order {
	c.log.Info("operator request", "tool", c.tool.Name, "reason", reason)
	c.orders.mu.Lock() // while the hold is written too: what is kept is what the last order says
	defer c.orders.mu.Unlock()
	c.opts.Holds.Save(c.tool, held, c.log)
	return c.orders.giveLocked(reason, held, fresh)
}

// recall makes what is remembered of a hold an order: the capsule of an earlier
// manifest, or of an earlier Orla, may have had it.
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

// Stop stops the capsule until Start or Restart is called, of this Capsule or of
// another one of the same manifest, and returns when it is STOPPED. ctx bounds
// only the waiting.
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
		return true, fault.New(fault.NotReady, "%s was started again by an operator meanwhile", c.tool.Name)
	})
}

// Start ends a stop by an operator, and starts the capsule at once if it is not READY,
// with a fresh count of its failures. It returns when the capsule is READY, or
// with why it is not to be. ctx bounds only the waiting.
func (c *Capsule) Start(ctx context.Context) error {
	return c.awaitReady(ctx, c.give("started by an operator", false, false))
}

// Restart does as Start, but with a new process in any case.
func (c *Capsule) Restart(ctx context.Context) error {
	return c.awaitReady(ctx, c.give("restarted by an operator", false, true))
}

// awaitReady returns when a process that obeys o is READY, or when a start that
// was made for o has failed.
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
				return false, nil // a process that obeys is to come yet
			case o.n == o.after:
				return true, s.refused
			}
			return true, nil // it was a restart before o that failed, and the old process is READY
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
			return fault.Wrap(fault.From(cause).Code, cause, "%s is %s yet (%s); what was asked for goes on", c.tool.Name, s.state, s.reason)
		}
	}
}

// notServed is for those who wait for what nobody does any more.
func (c *Capsule) notServed() error {
	return fault.Wrap(fault.NotReady, peer.ErrGone, "%s is not served any more: its manifest has changed or gone, or Orla stops", c.tool.Name)
}

// awaitStart waits until a process is to be started, and reports whether one is:
// not while the capsule is held; at once, unless it is one that a call starts.
func (c *Capsule) awaitStart(ctx context.Context, restarts *restarts.Schedule) bool {
	for ctx.Err() == nil {
		o, s := c.orders.last.Load(), c.status.Load()
		switch {
		case o.held:
			if o != c.seen || s.starts != byOperator {
				c.rest(o)
			}
		case o != c.seen:
			c.because = o.reason
			restarts.Forgive()
			c.count(restarts)
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

// awaitChange waits until something is to be looked at again. It reports whether a
// process is to be started: a call wants it, or its time has come.
func (c *Capsule) awaitChange(ctx context.Context, o *order, s *status) bool {
	var due <-chan time.Time
	if !s.next.IsZero() {
		timer := time.NewTimer(time.Until(s.next))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-c.wake:
		return !o.held
	case <-due:
		c.because = "it is tried again"
		return true
	case <-c.files.Changed(): // the next process will have it
	case <-o.changed:
	case <-ctx.Done():
	}
	return false
}

// rest leaves a capsule that has no process STOPPED, as o wants it.
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

// liveUntilHeld runs one process, unless the capsule is held meanwhile.
func (c *Capsule) liveUntilHeld(ctx context.Context, restarts *restarts.Schedule) ending {
	ctx, o, release := c.orders.attach(ctx)
	defer release()
	if o.held {
		return ending{}
	}
	c.seen = o
	return c.live(ctx, restarts)
}

// follow looks at an order while a capsule has a process that was started after
// the nth. It returns a request for another one, if that is what the order comes to.
func (c *Capsule) follow(o *order, n int) *trigger {
	switch {
	case n >= o.after:
		c.seen = o
		return nil
	case o.held:
		return nil // the life of the process ends by its context
	}
	return &trigger{o.reason, time.Now()}
}

// refuse tells those who wait for a process that was to replace another that it
// does not start.
func (c *Capsule) refuse(s successor) {
	text := fmt.Sprintf("%s: the new process does not start, and the old one serves on: %s", c.tool.Name, reasonOf(s.err))
	if s.stderr != "" {
		text += "; its last lines on stderr:\n" + s.stderr
	}
	c.amend(func(now *status) {
		now.refused, now.tried = fault.New(fault.StartFailed, "%s", text), s.order
	})
}
