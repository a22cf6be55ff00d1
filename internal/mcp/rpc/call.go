package rpc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Request is one call.
type Request struct {
	Method string
	// Params returns the params, valid JSON on one line, in pieces that nobody
	// changes any more. id is the request's own, which can serve as a progress
	// token. If nil, there are no params.
	Params func(id int64) [][]byte
	// Client names the client that the request is made for. If "", it is for none, and Sole does
	// not count it.
	Client string
	// About is returned by Conn.Sole and Conn.About.
	About any
	// Owner is whose share the request takes of what its transport bounds.
	Owner turns.Owner
	// Note, if not nil, is called for each of the call's notes, in order and
	// before Call returns. It may block.
	Note func(method string, params json.RawMessage)
	// Own says that the request is not made for a client: Unused does not count it.
	Own bool
	// Standing says that the request may stay without an answer for as long as the
	// connection lasts. InFlight does not count it, and Drain does not wait for it.
	Standing bool
	// Late, if not nil, is called with the Owner when the other side is not busy any more with
	// a request that Call did not wait for, whose error is a *LateError then. That is so when
	// it has answered it, or one that was sent after it, when the connection is over, and at
	// the latest LateFor after Call has returned. It must not block.
	Late    func(turns.Owner)
	LateFor time.Duration
	// Quiet says that the other side is not told when the request is cancelled.
	Quiet bool
}

// Pending is a call without an answer.
type Pending struct {
	// ID is the request's id. Owner is whose share it takes; see Request.Owner.
	ID    int64
	Owner turns.Owner

	ctx      context.Context // the call's, for who reads its answer
	room     *turns.Account  // what it holds of the room for answers; nil where nobody counts
	events   chan event
	own      bool         // see Request.Own
	standing bool         // see Request.Standing
	noted    atomic.Int64 // bytes of the notes that wait
	client   string       // see Request.Client
	about    any          // see Request.About
	number   int64        // in the order in which requests are sent; guarded by Conn.mu
}

// Account returns what the call holds of the room for answers; nil where nobody counts.
func (p *Pending) Account() *turns.Account { return p.room }

// event is a note for a call, or its answer.
type event struct {
	method string          // of a note; "" for the answer
	params json.RawMessage // of a note
	result json.RawMessage // the answer's result
	err    error           // a *jsonrpc.Error that the other side gave, or why there is no answer
	inHand int64           // bytes of the result that have no room yet
}

// maxNotes bounds the notes of a call that wait for a slow client. Further ones are dropped: they report
// progress, and a later one replaces them.
const (
	maxNotes     = 64
	maxNoteBytes = 1 << 20
	// maxAllNotes bounds the bytes of all calls' notes, which callers share.
	maxAllNotes = 64 << 20
)

// Call makes a request and waits for its answer. When ctx ends first, the other
// side is told by notifications/cancelled and the error is ctx's cause; a later
// answer is dropped. An error is a *jsonrpc.Error when the other side gave one,
// else it tells why there is no answer.
func (c *Conn) Call(ctx context.Context, req Request) (json.RawMessage, error) {
	return c.CallWith(ctx, req, req.Params)
}

// CallWith is Call with params in place of the request's own. By themselves, they and what they use need not be on the heap.
func (c *Conn) CallWith(ctx context.Context, req Request, params func(id int64) [][]byte) (json.RawMessage, error) {
	notes := 0
	if req.Note != nil {
		notes = maxNotes
	}
	p := &Pending{ctx: ctx, room: turns.AccountOf(ctx), events: make(chan event, notes+1), client: req.Client, about: req.About, Owner: req.Owner, own: req.Own, standing: req.Standing}
	if err := c.begin(p); err != nil {
		return nil, err
	}
	if err := c.transport.Send(ctx, p, requestLine(p.ID, req.Method, params)); err != nil {
		c.forget(p.ID)
		return nil, err
	}
	for {
		select {
		case e := <-p.events:
			if e.method == "" {
				return p.admit(ctx, e)
			}
			if size := int64(len(e.params)); size > 0 {
				p.noted.Add(-size)
				c.notes.Give(p.Owner, size)
			}
			req.Note(e.method, e.params)
		case <-ctx.Done():
			forgotten, isLate := c.leave(p, req.Late, req.LateFor)
			if left := p.noted.Swap(0); left > 0 { // nothing more comes
				c.notes.Give(p.Owner, left)
			}
			if forgotten && !req.Quiet {
				c.Post(req.Owner, "notifications/cancelled", cancelParams(p.ID, context.Cause(ctx)))
			}
			if isLate {
				c.ask()
				return nil, &LateError{context.Cause(ctx)}
			}
			if !forgotten {
				if e, has := p.answered(); has {
					return p.admit(ctx, e)
				}
			}
			return nil, context.Cause(ctx)
		}
	}
}

// answered returns the answer to a call if it has come; then it is the last event.
func (p *Pending) answered() (event, bool) {
	for {
		select {
		case e := <-p.events:
			if e.method == "" {
				return e, true
			}
		default:
			return event{}, false
		}
	}
}

// admit makes room for an answer.
func (p *Pending) admit(ctx context.Context, e event) (json.RawMessage, error) {
	if e.inHand > 0 {
		if err := p.room.Settle(ctx, e.inHand); err != nil {
			return nil, err
		}
	}
	return e.result, e.err
}

func cancelParams(id int64, cause error) json.RawMessage {
	return fmt.Appendf(nil, `{"requestId":%d,"reason":%s}`, id, rawjson.Quote(cause.Error()))
}

// begin gives a call its id.
func (c *Conn) begin(p *Pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, c.closed)
	}
	if c.drain.refuses {
		return ErrNotSent
	}
	if p.client != "" && p.client != c.served.first {
		c.served.add(p.client, p.Owner.Tenant())
	}
	if p.standing {
		c.calls.standing++
	} else if c.still.end != nil && !p.own && p.Owner.Tenant() != c.still.tenant {
		c.still.end(ErrNoRoom)
	}
	p.ID = c.nextLocked()
	c.calls.pending[p.ID] = p
	return nil
}

// maxRandom is one more than the highest random id. A number in JavaScript has as many bits.
const maxRandom = 1 << 53

// nextLocked returns the id of the next request.
func (c *Conn) nextLocked() int64 {
	if !c.opts.RandomIDs {
		c.calls.last++
		return c.calls.last
	}
	for {
		var bits [8]byte
		_, _ = rand.Read(bits[:]) // it never fails
		id := int64(binary.NativeEndian.Uint64(bits[:]) % maxRandom)
		_, presumed := c.late.presumed[id]
		if id != 0 && id != c.late.probe && c.calls.pending[id] == nil && c.late.requests[id] == nil && !presumed {
			return id
		}
	}
}

// Sending notes that a message is about to be sent: that of a call, or any other if call is nil. An error
// says why the Conn is over; then the message must not be sent.
func (c *Conn) Sending(call *Pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.order.sent++; call != nil {
		call.number = c.order.sent
	}
	return c.closed
}

// forget removes a call that nobody waits for any more, and reports whether it had no answer yet.
func (c *Conn) forget(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removeLocked(id) != nil
}

func (c *Conn) removeLocked(id int64) *Pending {
	p := c.calls.pending[id]
	if p != nil {
		delete(c.calls.pending, id)
		if p.standing {
			c.calls.standing--
		}
		if !p.own {
			c.calls.used = time.Now()
		}
		c.signalIdleLocked()
	}
	return p
}

// answer ends the call of an id, and reports whether there was one.
func (c *Conn) answer(id int64, e event) bool {
	c.mu.Lock()
	p := c.removeLocked(id)
	if p == nil {
		c.mu.Unlock()
		return c.answeredLate(id)
	}
	switch {
	case p.own, p.standing:
	case p.number < c.order.newest:
		c.overtaken.Store(true)
	default:
		c.order.newest = p.number
	}
	p.events <- e // a place is kept for it
	number, isLate := p.number, len(c.late.requests) > 0
	c.mu.Unlock()
	if isLate {
		c.lateUntil(number)
	}
	return true
}

// Fail ends the call of an id with the error why, if it has no answer yet.
func (c *Conn) Fail(id int64, why error) { c.answer(id, event{err: why}) }

// FailOnly is like Fail, for the only pending call, if there is exactly one.
func (c *Conn) FailOnly(why error) {
	c.mu.Lock()
	var only int64
	if len(c.calls.pending) == 1 {
		for only = range c.calls.pending {
		}
	}
	c.mu.Unlock()
	c.Fail(only, why)
}
