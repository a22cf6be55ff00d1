// Package inflight counts the calls and other requests that are being answered, bounds them for each caller, and ends
// them when Orla stops.
package inflight

import (
	"context"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// most bounds the calls and other requests that are being answered or wait at one time. A caller
// has no more than it leaves to others (turns.Shares).
const most = 8192

// errStopping is why calls are refused and ended while Orla stops.
var errStopping = fault.New(fault.NotReady, "Orla is stopping; try again when it is back")

var errTooMany = fault.Unsent(fault.New(fault.RateLimited,
	"too many calls: Orla answers %d at one time at most, and no caller or session has more than its share of them; wait for answers and try again", most))

// Calls are the calls and other requests in flight. Its methods may be called from any goroutine.
type Calls struct {
	stopping chan struct{} // closed when new calls are refused
	idle     chan struct{} // closed when, in addition, no call is in flight
	shares   *turns.Shares // of most; has a lock of its own

	mu      sync.Mutex // guards the fields that follow
	refuses bool       // stopping is closed
	all     calls
}

// New returns Calls without any.
func New() *Calls {
	return &Calls{stopping: make(chan struct{}), idle: make(chan struct{}), shares: turns.NewShares(most)}
}

// Call is one call, or another request, in flight.
type Call struct {
	in    *Calls
	end   context.CancelCauseFunc
	owner turns.Owner
	began time.Time

	// The fields that follow are guarded by Calls.mu.
	before, after *Call // in Calls.all
	waits         bool  // nothing has been asked of a provider; see Waiting
	parked        bool  // it has no place in Calls.shares; see Park
}

// calls is a list, whose links are in the calls themselves.
type calls struct {
	oldest, newest *Call
	n              int
}

// add appends a call.
func (l *calls) add(one *Call) {
	if one.before = l.newest; one.before != nil {
		one.before.after = one
	} else {
		l.oldest = one
	}
	l.newest = one
	l.n++
}

// remove removes a call that is there.
func (l *calls) remove(one *Call) {
	if one.before != nil {
		one.before.after = one.after
	} else {
		l.oldest = one.after
	}
	if one.after != nil {
		one.after.before = one.before
	} else {
		l.newest = one.before
	}
	one.before, one.after = nil, nil
	l.n--
}

// Enter counts a call in, unless Orla is stopping or there are too many. The context that it returns ends, in addition
// to when ctx does, when calls in flight must end. Leave must be called at the call's end.
func (c *Calls) Enter(ctx context.Context, owner turns.Owner) (context.Context, *Call, error) {
	return c.enter(ctx, &Call{in: c, owner: owner})
}

// Waiting counts in a request that waits for something before it enters: it is refused if there are too many. The
// context that it returns ends also when Orla stops, since nothing more is begun then. leave must be called at the end
// of the wait.
func (c *Calls) Waiting(ctx context.Context, owner turns.Owner) (_ context.Context, leave func(), _ error) {
	ctx, one, err := c.enter(ctx, &Call{in: c, owner: owner, waits: true})
	if err != nil {
		return nil, nil, err
	}
	return ctx, one.Leave, nil
}

func (c *Calls) enter(ctx context.Context, one *Call) (context.Context, *Call, error) {
	if !c.shares.Try(one.owner, 1) {
		return nil, nil, c.full()
	}
	ctx, one.end = context.WithCancelCause(ctx)
	one.began = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses {
		one.end(errStopping)
		c.shares.Give(one.owner, 1)
		return nil, nil, errStopping
	}
	c.all.add(one)
	return ctx, one, nil
}

// full returns why a call gets no place.
func (c *Calls) full() error {
	select {
	case <-c.stopping:
		return errStopping
	default:
		return errTooMany
	}
}

// Leave counts a call out.
func (one *Call) Leave() {
	one.end(nil)
	c := one.in
	c.mu.Lock()
	defer c.mu.Unlock()
	if !one.parked {
		c.shares.Give(one.owner, 1)
	}
	c.all.remove(one)
	if c.refuses && c.all.n == 0 {
		close(c.idle)
	}
}

// Park gives up the place of a call that waits for an approval, among those that calls in flight share. The call ends
// as soon as Orla stops.
func (one *Call) Park() error {
	if !one.park(true) {
		return errStopping
	}
	one.in.shares.Give(one.owner, 1)
	return nil
}

// Resume takes the place of a parked call back.
func (one *Call) Resume() error {
	if !one.in.shares.Try(one.owner, 1) {
		return one.in.full()
	}
	if !one.park(false) {
		one.in.shares.Give(one.owner, 1)
		return errStopping
	}
	return nil
}

// park notes whether a call is parked. It reports false if Orla is stopping.
func (one *Call) park(parked bool) bool {
	one.in.mu.Lock()
	defer one.in.mu.Unlock()
	if one.in.refuses {
		return false
	}
	one.waits, one.parked = parked, parked
	return true
}

// End ends the calls and requests in flight of some owners, as if their clients had cancelled them.
func (c *Calls) End(of func(turns.Owner) bool) { c.cancel(of, context.Canceled) }

// cancel ends the calls in flight of some owners, with a cause.
func (c *Calls) cancel(of func(turns.Owner) bool, cause error) {
	c.mu.Lock()
	all := make([]*Call, 0, c.all.n)
	for one := range c.eachLocked {
		all = append(all, one)
	}
	c.mu.Unlock()
	for _, one := range all {
		if of(one.owner) {
			one.end(cause)
		}
	}
}

// eachLocked yields the calls in flight, the oldest first.
func (c *Calls) eachLocked(yield func(*Call) bool) {
	for one := c.all.oldest; one != nil; one = one.after {
		if !yield(one) {
			return
		}
	}
}

// Stopping is closed when new calls are refused: what calls in flight have begun may end, and nothing more is to be
// begun for them.
func (c *Calls) Stopping() <-chan struct{} { return c.stopping }

// Refuse refuses new calls from now on, and returns how many are in flight. A further call changes nothing.
func (c *Calls) Refuse() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.refuses {
		c.refuses = true
		close(c.stopping)
		if c.all.n == 0 {
			close(c.idle)
		}
		for one := range c.eachLocked {
			if one.waits {
				one.end(errStopping)
			}
		}
	}
	return c.all.n
}

// Drain refuses new calls and waits until those in flight have ended. When ctx ends first, it cancels them and waits
// for what that takes (SPEC H4).
func (c *Calls) Drain(ctx context.Context) {
	c.Refuse()
	select {
	case <-c.idle:
		return
	case <-ctx.Done():
	}
	c.cancel(func(turns.Owner) bool { return true }, errStopping)
	<-c.idle
}

// InFlight returns the number of calls that have begun and not ended.
func (c *Calls) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.n
}

// Parked returns how many of the calls in flight wait for an approval. They end when calls are refused.
func (c *Calls) Parked() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.eachLocked {
		if one.parked {
			n++
		}
	}
	return n
}

// Older returns how many calls in flight have taken longer than that, of those that do not wait for an approval.
func (c *Calls) Older(than time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.eachLocked {
		if time.Since(one.began) < than {
			break
		}
		if !one.parked {
			n++
		}
	}
	return n
}

// Longest returns how long the oldest call in flight has taken, of those that do not wait for an approval; 0 without one.
func (c *Calls) Longest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.eachLocked {
		if !one.parked {
			return time.Since(one.began)
		}
	}
	return 0
}

// Lock is what Enter takes, for a check that it is not stuck.
func (c *Calls) Lock() sync.Locker { return &c.mu }
