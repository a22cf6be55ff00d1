package capsule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/orla-project/orla/capsule/handshake"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

// ending is why a process is over.
type ending struct {
	err    error         // it failed
	reload bool          // another one is wanted
	reason string        // for the log
	ready  time.Duration // how long it was READY
	run    run           // the process; zero if there was none
	given  bool          // another program goes on with it
}

// live runs one process from its start until nothing of it is left, and returns why it
// ended. The next state is published before the process is ended, so that no call reaches a
// process that is ending.
func (c *Capsule) live(ctx context.Context) ending {
	before := c.status.Load()
	reason := c.startReason(before)
	if c.taken != nil {
		reason = "Orla was upgraded, and goes on with its process"
	}
	var in *incarnation
	err := c.install(ctx)
	c.become(status{state: Starting, reason: reason, cause: before.cause})
	c.began = time.Now()
	if c.taken != nil {
		c.began = c.taken.Began
	}
	c.stderr.Store(nil) // the lines of earlier processes
	if err == nil {
		in, err = c.begin(ctx, c.seen.n)
	}
	if err != nil {
		end := ending{err: err}
		c.leave(context.Cause(ctx), end)
		return end
	}
	var retired sync.WaitGroup // those that were replaced
	defer retired.Wait()
	defer func() { in.kill() }() // no return and no panic leaves a process running
	c.stderr.Store(&in.stderr)
	c.amend(func(s *status) { s.run = in.run() })

	end := ending{run: in.run()}
	if end.err = in.greet(ctx); end.err != nil {
		handshake.AwaitLast(in.connection) // its last lines say more than its exit
	} else {
		end = c.attend(ctx, &in, &retired)
	}
	if end.given {
		return end
	}
	// The cause is read once: an operator may stop the capsule at any moment, and everything
	// that follows has to agree on the cause.
	cause := context.Cause(ctx)
	if cause != nil {
		end.err = nil
	}
	c.leave(cause, end)
	drain := c.tool.Runtime.Drain
	if end.err != nil {
		drain = 0
	}
	in.close(drain, c.endReason(cause, end))
	c.amend(func(s *status) { s.run = run{} })
	return end
}

// startReason returns why a capsule with a status is started.
func (c *Capsule) startReason(s *status) string {
	if why := c.because; why != "" {
		c.because = ""
		return why
	}
	switch {
	case s.starts == byCall:
		return "a call wants it"
	case s.state == Created:
		return "first start"
	case s.state == Reloading:
		return s.reason
	case s.state == Stopped:
		return "its service goes on"
	}
	return "restart after a failure"
}

// kill ends a process, if it has not ended, for the case that its owner panicked.
func (in *incarnation) kill() {
	select {
	case <-in.connection.Gone():
	default:
		in.connection.Kill()
		in.close(0, errCut)
	}
}

// attend keeps a capsule READY for as long as its process is healthy, and returns why this is
// over. serving is that process; in mode replace, newer ones take its place there.
func (c *Capsule) attend(ctx context.Context, serving **incarnation, retired *sync.WaitGroup) ending {
	in := *serving
	in.expected = c.offers.Expect() // before: who sees that it is READY may call what it is about to list
	c.become(status{state: Ready, reason: "handshake complete", run: in.run(), conn: in.conn})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := in.help(ctx)
	defer func() { end() }()

	stable := time.NewTimer(c.tool.Runtime.Restart.ResetAfter)
	defer stable.Stop()
	idle := time.NewTimer(c.tool.Runtime.IdleTimeout)
	defer idle.Stop()
	if c.tool.Runtime.IdleTimeout == 0 { // never
		idle.Stop()
	}
	var coming chan successor // receives the process that is to replace this one; nil for none
	var later *trigger        // a request for yet another process, which came before that one
	var waits delayed         // a request that waits for packages
	defer func() { waits.Stop() }()
	defer func() {
		if coming != nil { // there is nothing to replace any more
			cancel()
			if s := <-coming; s.in != nil {
				s.in.kill()
			}
		}
	}()
	look := c.seen // the last order of an operator that was looked at
	over := func(err error) ending {
		end := ending{err: err, ready: time.Since(in.ready), run: in.run()}
		if err != nil && c.restarts.Healthy(end.ready) && in.expired() { // sooner, it is a failure: the next one might end as soon
			end.err, end.reload, end.reason = nil, true, err.Error()
		}
		return end
	}
	for {
		var request *trigger // for another process
		select {
		case <-in.connection.Exited():
			return over(fmt.Errorf("it %s", in.connection.ExitText()))
		case <-in.connection.Heard():
			in.conn.Drain() // new calls wait for the next process
			select {
			case err := <-in.unwell: // why reading has ended
				return over(err)
			default:
			}
			return over(in.exitOr("it closed its stdout"))
		case <-in.conn.Over():
			return over(in.exitOr(in.conn.Err().Error()))
		case err := <-in.unwell:
			return over(err)
		case <-ctx.Done():
			return over(nil)
		case answer := <-c.gives:
			changes := coming != nil || waits.Done != nil || len(c.kick) > 0 || len(c.files.Changed()) > 0 // there is to be another process
			e := over(nil)
			e.reason = "Orla is upgraded"
			if changes {
				answer <- nil
				return e
			}
			end()
			e.given = c.giveAway(in, answer)
			return e
		case change := <-c.files.Changed():
			c.noteChange(change)
		case t := <-c.kick:
			if !t.at.Before(in.began) { // else the process has the change already
				request = &t
			}
		case <-look.changed:
			look = c.orders.last.Load()
			request = c.follow(look, in.order)
			if coming != nil {
				request = nil // the order is looked at again when the new process is there
			}
		case s := <-coming:
			coming = nil
			if s.err != nil {
				c.keep(ctx, s)
			} else {
				*serving = s.in
				end = c.succeed(ctx, in, s, end, retired)
				in = s.in
			}
			request = c.follow(look, s.order)
			if later != nil && later.at.After(s.began) {
				request = later
			}
			later = nil
		case line := <-waits.Says:
			c.noteInstall(line)
		case err := <-waits.Done:
			request = c.installed(&waits, look.n, err)
		case <-stable.C:
			c.restarts.Forgive()
		case <-idle.C:
			left := c.tool.Runtime.IdleTimeout - in.conn.Unused()
			if c.waiting.Taken() > 0 { // a call is about to be sent
				left = c.tool.Runtime.IdleTimeout
			}
			if left > 0 || !in.conn.DrainUnused(c.tool.Runtime.IdleTimeout) {
				idle.Reset(max(left, time.Millisecond))
				continue
			}
			e := over(nil)
			e.reason = fmt.Sprintf("no call for %s", c.tool.Runtime.IdleTimeout)
			return e
		}
		switch {
		case request == nil, c.delay(ctx, &waits, *request):
		case c.tool.Runtime.HotLoad.Mode != manifest.HotLoadReplace:
			e := over(nil)
			e.reload, e.reason = true, request.reason
			return e
		case coming != nil:
			later = request // for when the new process is there
		default:
			coming = c.replace(ctx, *request, look.n)
		}
	}
}

// expired reports whether the connection has expired; see Expirer.
func (in *incarnation) expired() bool {
	select {
	case <-in.connection.Exited():
		e, ok := in.connection.(Expirer)
		return ok && e.Expired()
	default:
		return false
	}
}

// help starts the goroutines that run while in is READY. end ends them, and waits for that.
func (in *incarnation) help(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	in.spawn(func() { in.followLists(ctx) })
	if in.expected {
		in.spawn(func() { in.c.offers.GiveUpAfter(ctx, expectPatience) })
	}
	if in.c.tool.Runtime.Health != nil {
		in.spawn(func() {
			if err := in.conn.CheckHealth(ctx); err != nil {
				in.fail(err)
			}
		})
	}
	return func() {
		cancel()
		in.helpers.Wait()
	}
}

// leave publishes the state that follows the end of a process (SPEC D1). cause is why it was
// ended from outside; nil if it was not.
func (c *Capsule) leave(cause error, end ending) {
	next, wait, starts := status{reason: end.reason, run: end.run}, time.Duration(0), false
	refusal := c.unauthorized(end.err)
	switch {
	case errors.Is(cause, errHeld):
		next.state, next.reason, next.starts = Stopping, errHeld.Error(), byOperator
	case cause != nil:
		next.state, next.reason, next.starts = Stopping, *c.retired.Load(), byNobody
	case refusal != nil: // not counted as a failure: somebody has to fix the credentials
		next.state, next.reason, next.starts, next.cause = Stopping, refusal.Reason, byCall, end.err
		wait, starts = c.restarts.Later(), true
	case end.err != nil:
		wait, starts = c.restarts.After(end.ready)
		next.state, next.reason = Crashed, fault.ReasonOf(end.err)
		if end.ready == 0 {
			next.stderr = c.stderr.Load().Short() // the rest is in the log
		}
		next.cause = end.err
	case end.reload:
		next.state = Reloading
	default: // idle
		next.state, next.starts = Stopping, byCall
	}
	next.since = time.Now()
	if starts {
		next.next = next.since.Add(wait)
	}
	c.become(next)
}

// errDrained is in the chain of the error of calls that did not end within drain_ms.
var errDrained = errors.New("the time to drain is over")

// endReason returns the error of the calls that a process leaves unanswered.
func (c *Capsule) endReason(cause error, end ending) error {
	name := c.tool.Name
	switch {
	case errors.Is(cause, errHeld):
		return c.heldError("was stopped by an operator during the call")
	case cause != nil:
		return errCut
	case end.err != nil:
		return c.crashedDuring(nil, end.err.Error())
	case end.reload:
		return fault.Wrap(fault.NotReady, errDrained, "%s was reloaded (%s) and the call did not end within drain_ms (%s); try again", name, end.reason, c.tool.Runtime.Drain)
	}
	return fault.New(fault.NotReady, "%s was stopped during the call (%s); try again", name, end.reason)
}

// crashedDuring returns the error of a call whose process failed. It says whether another
// process is started.
func (c *Capsule) crashedDuring(cause error, how string) *fault.Error {
	f := fault.Wrap(fault.Crashed, cause, "%s crashed during the call: %s", c.tool.Name, how)
	switch s := c.status.Load(); {
	case c.gaveUpOn(s):
		f.Reason += fmt.Sprintf("; it is started again when its files change, or by \"orla start %s\"", c.tool.Name)
		f.Retry = new(false)
	case s.state == Ready: // nobody has decided yet
		f.Reason += "; try again"
	default:
		f.Reason += "; it is started again, try once more"
	}
	return f
}

// gaveUpOn reports whether only a change of files or an operator starts the capsule again,
// so that repeating a call does not help.
func (c *Capsule) gaveUpOn(s *status) bool {
	return !c.far() && (s.state == Stopped && s.starts != byCall || s.state == Crashed && s.next.IsZero())
}

// noteChange requests a reload for a change of files, unless the change is not to make one.
// Only Serve's goroutine calls it.
func (c *Capsule) noteChange(change watch.Change) {
	if reason, reload := c.files.Reloads(change); reload {
		c.trigger(trigger{reason: reason, at: change.At})
	}
}

// pause waits after the end of a process: in CRASHED until the next start is due, in STOPPED
// until files change (SPEC D9). It returns at once after a reload, and when an operator
// requests something.
func (c *Capsule) pause(ctx context.Context) {
	s := c.status.Load()
	switch {
	case s.state == Stopping && s.starts != byNobody:
		c.forgetWake()
		c.become(status{state: Stopped, reason: s.reason, starts: s.starts, cause: s.cause, next: s.next})
		return // awaitStart waits
	case s.state != Crashed:
		return
	}
	var due <-chan time.Time
	if s.next.IsZero() {
		why := s.cause
		if c.restarts.Failures() > 1 {
			why = fmt.Errorf("%d failures in a row, the last: %w", c.restarts.Failures(), s.cause)
		}
		stopped := status{state: Stopped, reason: why.Error(), cause: why}
		if c.far() {
			stopped.starts = byCall
			c.forgetWake()
			stopped.next = time.Now().Add(c.restarts.AfterLimit())
			c.become(stopped)
			return // awaitStart waits: a call tries whether the server is there again, and so does Orla
		}
		c.become(stopped)
	} else {
		due = time.After(time.Until(s.next))
	}
	for {
		select {
		case <-due:
		case change := <-c.files.Changed():
			c.noteChange(change)
			continue
		case t := <-c.kick:
			if t.at.Before(c.began) {
				continue // the process that failed had this change already
			}
			c.because = t.reason
			c.restarts.Forgive()
		case <-c.seen.changed:
		case <-ctx.Done():
		}
		return
	}
}

// far reports whether the capsule is a session with a remote server. Nothing tells Orla when
// such a server is back.
func (c *Capsule) far() bool { return c.tool.Runtime.Remote != nil }

// forgetWake drops the request of a call to start the capsule. A call that still waits
// requests it again.
func (c *Capsule) forgetWake() {
	select {
	case <-c.wake:
	default:
	}
}

// amend publishes a change of the status that is not a change of state.
func (c *Capsule) amend(change func(*status)) {
	old := c.status.Load()
	next := *old
	next.changed = make(chan struct{})
	change(&next)
	c.status.Store(&next)
	close(old.changed)
}

var _ rpc.Handler = (*incarnation)(nil)
