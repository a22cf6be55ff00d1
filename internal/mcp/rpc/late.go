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

// late is what the other side may still be working on, though nobody waits for it. Many
// work on one request after the other: what follows waits for these too.
type late struct {
	requests map[int64]*lateRequest // by their ids
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

// maxLate bounds the requests that are kept in mind. What is beyond counts as over.
const maxLate = 1024

// leave drops a call that nobody waits for any more. unanswered says that it had no answer
// yet, and isLate that its Request.Late will be called.
func (c *Conn) leave(p *Pending, req *Request) (unanswered, isLate bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unanswered = c.removeLocked(p.ID) != nil
	if !unanswered || req.Late == nil || p.number == 0 || len(c.late.requests) >= maxLate {
		return unanswered, false
	}
	if c.late.requests == nil {
		c.late.requests = map[int64]*lateRequest{}
	}
	id := p.ID
	c.late.requests[id] = &lateRequest{
		number: p.number, owner: p.Owner, over: req.Late,
		limit: time.AfterFunc(req.LateFor, func() { c.lateOver(func(other int64, _ *lateRequest) bool { return other == id }) }),
	}
	return true, true
}

// ask sends a ping where late requests are to be known to be over, and none is on its way.
func (c *Conn) ask() {
	c.mu.Lock()
	if !c.opts.Pings || len(c.late.requests) == 0 || c.late.probe != 0 || c.closed != nil {
		c.mu.Unlock()
		return
	}
	c.calls.last++
	c.late.probe, c.late.probed = c.calls.last, c.order.sent
	line := requestLine(c.late.probe, Request{Method: "ping"})
	c.mu.Unlock()
	c.transport.Post(turns.Owner{}, bytes.Join(line, nil))
}

// answeredLate takes the answer of a ping, or a late one, and reports whether it was one of
// these. The requests that were sent before are over.
func (c *Conn) answeredLate(id int64) bool {
	c.mu.Lock()
	until, is := int64(0), false
	switch l := c.late.requests[id]; {
	case id == c.late.probe && id != 0:
		until, is = c.late.probed, true
		c.late.probe = 0
	case l != nil:
		until = l.number
	}
	c.mu.Unlock()
	if until > 0 {
		c.lateUntil(until)
		c.ask() // there may be others since
	}
	return is
}

// lateUntil says that the late requests up to a number are over.
func (c *Conn) lateUntil(number int64) {
	c.lateOver(func(_ int64, l *lateRequest) bool { return l.number <= number })
}

// lateOver says that some late requests are over.
func (c *Conn) lateOver(is func(id int64, l *lateRequest) bool) {
	var over []*lateRequest
	c.mu.Lock()
	for id, l := range c.late.requests {
		if is(id, l) {
			over = append(over, l)
			delete(c.late.requests, id)
		}
	}
	c.mu.Unlock()
	for _, l := range over {
		l.limit.Stop()
		l.over(l.owner)
	}
}
