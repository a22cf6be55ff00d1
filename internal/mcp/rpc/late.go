package rpc

import (
	"bytes"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// LateError is the error of a Call that did not wait for its answer, where the other side
// may still be working on the request. Its cause is that of the call's context.
type LateError struct{ Cause error }

// Error is that of the cause.
func (e *LateError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *LateError) Unwrap() error { return e.Cause }

// IsLate returns the cause of a LateError, or else err, and whether it is one.
func IsLate(err error) (cause error, late bool) {
	if l, ok := err.(*LateError); ok { //nolint:errorlint // nobody wraps it
		return l.Cause, true
	}
	return err, false
}

// late is what the other side may still be working on, though nobody waits for it. Many
// work on one request after the other: what follows waits for these too.
//
// A request is over when it is answered. Not all answer what was cancelled, so some signs count as well: that
// a later request or ping is answered, and, where no ping is possible, that silence has passed. These signs
// are wrong for those that work on several requests at once and do not stop. So they count no more once a
// request is answered that counted as over.
type late struct {
	requests map[int64]*lateRequest // by their ids
	presumed map[int64]struct{}     // requests that counted as over without an answer
	outlives bool                   // one of these was answered
	probe    int64                  // the id of the ping that asks whether they are over; 0 if there is none
	probed   int64                  // the number of the last request that was sent before it
}

// lateRequest is a request whose Call has returned without an answer.
type lateRequest struct {
	number int64 // see Pending
	owner  turns.Owner
	over   func(turns.Owner) // see Request.Late
	limit  *time.Timer
}

const (
	// maxLate bounds the requests that are kept in mind. What is beyond counts as over.
	maxLate = 1024
	// silence is how long the other side may say nothing of a request that was given up.
	silence = 5 * time.Second
)

// leave drops a call that nobody waits for any more. unanswered says that it had no answer
// yet, and isLate that its Request.Late will be called.
func (c *Conn) leave(p *Pending, over func(turns.Owner), within time.Duration) (unanswered, isLate bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unanswered = c.removeLocked(p.ID) != nil
	if !unanswered || over == nil || p.number == 0 || len(c.late.requests) >= maxLate {
		return unanswered, false
	}
	if c.late.requests == nil {
		c.late.requests = map[int64]*lateRequest{}
	}
	id := p.ID
	c.late.requests[id] = &lateRequest{
		number: p.number, owner: p.Owner, over: over,
		limit: time.AfterFunc(min(silence, within), func() { c.silent(id, within-silence) }),
	}
	return true, true
}

// silent is called when the silence of a request has passed. left is what is left of its LateFor.
func (c *Conn) silent(id int64, left time.Duration) {
	c.mu.Lock()
	l := c.late.requests[id]
	if l == nil {
		c.mu.Unlock()
		return
	}
	busy := c.late.probe != 0 && c.late.probed >= l.number // it does not even answer a ping
	if left > 0 && (c.late.outlives || busy) {
		l.limit = time.AfterFunc(left, func() { c.silent(id, 0) })
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.lateOver(func(other int64, _ *lateRequest) bool { return other == id })
}

// ask sends a ping where late requests are to be known to be over, and none is on its way.
func (c *Conn) ask() {
	c.mu.Lock()
	if !c.opts.Pings || len(c.late.requests) == 0 || c.late.probe != 0 || c.late.outlives || c.overtaken.Load() || c.closed != nil {
		c.mu.Unlock()
		return
	}
	c.late.probe, c.late.probed = c.nextLocked(), c.order.sent
	line := requestLine(c.late.probe, "ping", nil)
	c.mu.Unlock()
	c.transport.Post(turns.Owner{}, bytes.Join(line, nil))
}

// answeredLate takes the answer of a ping, or a late one, and reports whether it was one of
// these.
func (c *Conn) answeredLate(id int64) bool {
	c.mu.Lock()
	until, isPing := int64(0), false
	l := c.late.requests[id]
	_, presumed := c.late.presumed[id]
	switch {
	case id == c.late.probe && id != 0:
		until, isPing = c.late.probed, true
		c.late.probe = 0
	case l != nil:
		until = l.number
		c.finishLocked(id)
	case presumed:
		c.late.outlives = true
		delete(c.late.presumed, id)
	}
	c.mu.Unlock()
	if l != nil {
		l.over(l.owner)
	}
	if until > 0 {
		c.lateUntil(until)
		c.ask() // there may be others since
	}
	return isPing
}

// lateUntil says that a request was answered that was sent as the one of a number. Late requests
// that were sent before are over, if the other side works on one request after the other.
func (c *Conn) lateUntil(number int64) {
	if c.overtaken.Load() {
		return
	}
	c.lateOver(func(_ int64, l *lateRequest) bool { return !c.late.outlives && l.number <= number })
}

// lateOver says that some late requests count as over. is is called with c.mu held.
func (c *Conn) lateOver(is func(id int64, l *lateRequest) bool) {
	var over []*lateRequest
	c.mu.Lock()
	for id, l := range c.late.requests {
		if is(id, l) {
			over = append(over, l)
			c.finishLocked(id)
			c.presumeLocked(id)
		}
	}
	c.mu.Unlock()
	for _, l := range over {
		l.over(l.owner)
	}
}

// finishLocked forgets a late request.
func (c *Conn) finishLocked(id int64) {
	c.late.requests[id].limit.Stop()
	delete(c.late.requests, id)
}

// presumeLocked notes that a request counts as over without an answer.
func (c *Conn) presumeLocked(id int64) {
	if c.late.presumed == nil {
		c.late.presumed = map[int64]struct{}{}
	}
	if len(c.late.presumed) >= maxLate { // any one of them gives way
		for other := range c.late.presumed {
			delete(c.late.presumed, other)
			break
		}
	}
	c.late.presumed[id] = struct{}{}
}
