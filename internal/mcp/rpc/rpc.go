// Package rpc has the calls of JSON-RPC 2.0 over one connection, whatever carries
// it: lines on the pipes of a process (internal/mcp/linerpc), or a session over HTTP
// (internal/service/remote).
//
//	Call ─► Transport.Send ─► the other side ─► Receive ─► the Call that it answers
//	                                                    └► Handler: notifications, requests, noise
//
// It does not know what the messages mean. Results and params are passed on without decoding them. A line
// that is not a message goes to the Handler, and does not end the connection.
package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
)

// Transport carries messages to the other side. Its methods may be called from any
// goroutine. What comes from there is given to Conn.Receive.
type Transport interface {
	// Send sends a message, which is in pieces that end with a newline. It returns
	// when the message has its turn: what is sent after it comes after it. call is the
	// call that it makes; nil for a notification. Conn.Sending is asked right before it
	// is sent. An error has ErrNotSent in its chain: nothing of it was sent.
	Send(ctx context.Context, call *Pending, message [][]byte) error
	// Post sends a message, which ends with a newline, as soon as it can, and does not
	// wait for that. It takes whose share of what may wait.
	Post(whose turns.Owner, message []byte)
	// Close returns when nothing is being written any more. It is called after
	// Conn.Err tells why.
	Close()
}

// Handler takes the messages of the other side that are not answers to calls. Its methods are called one at a
// time, in the order of the messages, and must not block.
type Handler interface {
	// Notified is called for a notification.
	Notified(method string, params json.RawMessage)
	// Asked is called for a request. Conn.Reply answers it.
	Asked(id json.RawMessage, method string, params json.RawMessage)
	// Unclaimed is called for an answer that no call waits for.
	Unclaimed(id json.RawMessage)
	// Noise is called for what is not a message, with the reason why. It is cut when
	// it is long.
	Noise(text []byte, why string)
}

// Options configures a Conn.
type Options struct {
	// Handler is required.
	Handler Handler
	// Clean may change a message before it is read. If nil, messages are read as they
	// came.
	Clean func(message []byte) []byte
	// Pings says that the other side answers a ping, also by an error. By these it is known
	// what it is not busy with any more; see Request.Late.
	Pings bool
	// RandomIDs has requests get ids that nobody can guess, instead of 1, 2, 3: so text that looks like an answer, and
	// gets among the messages, answers none.
	RandomIDs bool
	// Before is what an earlier Conn with the other side has left; nil for none.
	Before *State
}

// State is what is known of the other side after some calls; see Conn.State.
type State struct {
	LastID    int64  `json:"last_id"`
	Client    string `json:"client,omitempty"` // the first client it was asked for; see Sole
	Shared    bool   `json:"shared,omitempty"`
	Overtaken bool   `json:"overtaken,omitempty"` // see SideBySide
}

// Errors of a Call that say what happened to it.
var (
	// ErrNotSent is in the chain when nothing of the request was sent.
	ErrNotSent = errors.New("the request was not sent")
	// ErrTooLong is in the chain when the answer was longer than a message may be.
	ErrTooLong = errors.New("the answer is too long")
	// ErrNoRoom is in the chain when there was no room for the answer beside those that
	// the same client, or another of its tenant's, has not taken yet (turns.Room).
	ErrNoRoom = errors.New("other answers of the same caller that were not read yet use all the memory for answers")
)

// TransportError is in the chain if the transport failed: the other side was not reached, or its answer could
// not be received.
type TransportError struct {
	Fault *fault.Error // without a cause
}

// Error gives the reason.
func (e *TransportError) Error() string { return e.Fault.Reason }

// Conn is the calls on one connection. Its methods may be called from any goroutine,
// but Receive from one at a time.
type Conn struct {
	transport Transport
	opts      Options

	made  time.Time
	heard atomic.Int64 // when the last message came, in nanoseconds after made
	// unasked and works are used by Receive alone: what it returns, and in whose turn it works; nil for no turn.
	unasked int
	works   *turns.Account

	notes *turns.Shares // of the bytes of all notes that wait

	mu     sync.Mutex // guards the fields that follow
	calls  table
	served served
	order  order
	drain  drain
	late   late
	still  still
	closed error // why nothing is sent any more; nil while it is open

	overtaken atomic.Bool // see SideBySide

	over chan struct{} // closed with closed set
}

// table has the calls without an answer.
type table struct {
	pending  map[int64]*Pending
	standing int       // how many of them are; see Request.Standing
	last     int64     // the id given last, if they are not random
	used     time.Time // when the last call of a client ended
}

// served says which clients have made requests.
type served struct {
	first   string      // the last client; "" before the first request
	shared  bool        // requests of other clients were sent too
	tenant  turns.Owner // the caller of the last client
	tenants bool        // requests of clients of other callers were sent too
}

// order keeps in which order requests are sent and answered.
type order struct {
	sent   int64 // how many requests were sent, or are about to be
	newest int64 // the highest number of a client's request that was answered
}

// drain is the wait for the end of pending calls.
type drain struct {
	refuses bool          // new calls are refused; see Drain
	idle    chan struct{} // closed at the next moment without pending calls; nil while nobody waits
}

// New returns a Conn over a transport.
func New(t Transport, opts Options) *Conn {
	c := &Conn{
		transport: t, opts: opts,
		calls: table{pending: map[int64]*Pending{}, used: time.Now()},
		notes: turns.NewShares(maxAllNotes),
		over:  make(chan struct{}),
		made:  time.Now(),
	}
	if b := opts.Before; b != nil {
		c.calls.last, c.served = b.LastID, served{first: b.Client, shared: b.Shared, tenants: b.Shared}
		c.overtaken.Store(b.Overtaken)
	}
	return c
}

// State returns what another Conn with the same other side has to know. It may be called when nothing is sent
// any more.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return State{LastID: c.calls.last, Client: c.served.first, Shared: c.served.shared, Overtaken: c.overtaken.Load()}
}

// Close ends pending and future calls with the error why. It returns when nothing is written any more. Only
// the first Close has an effect.
func (c *Conn) Close(why error) {
	c.GiveUp(why)
	c.mu.Lock()
	for id, p := range c.calls.pending {
		e := event{err: why}
		if p.number == 0 {
			e.err = fmt.Errorf("%w: %w", ErrNotSent, why)
		}
		p.events <- e // a place is kept for it
		delete(c.calls.pending, id)
	}
	c.calls.standing = 0
	c.signalIdleLocked()
	c.mu.Unlock()
	c.lateOver(func(int64, *lateRequest) bool { return true })
	c.transport.Close()
}

// GiveUp refuses to send anything from now on. Pending calls stay until Close, whose caller knows the reason
// better.
func (c *Conn) GiveUp(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = why
		close(c.over)
	}
}

// Over returns a channel that is closed when the Conn was closed, or cannot be written to any more. Its owner
// must call Close then.
func (c *Conn) Over() <-chan struct{} { return c.over }

// Err returns why the Conn is over; nil before that.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// SideBySide reports whether the other side has answered requests of clients out of order, and so works on
// several at a time.
func (c *Conn) SideBySide() bool { return c.overtaken.Load() }

// InFlight returns the number of calls without an answer.
func (c *Conn) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls.pending) - c.calls.standing
}

// Unused returns for how long there was no call of a client; 0 while there is one.
func (c *Conn) Unused() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unusedLocked()
}

func (c *Conn) unusedLocked() time.Duration {
	for _, p := range c.calls.pending {
		if !p.own {
			return 0
		}
	}
	return time.Since(c.calls.used)
}

// Silent returns for how long no message has come.
func (c *Conn) Silent() time.Duration {
	return time.Since(c.made) - time.Duration(c.heard.Load())
}

// Drain refuses new calls with ErrNotSent, and returns a channel that is closed when all calls have an
// answer.
func (c *Conn) Drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain.refuses = true
	if c.drain.idle == nil {
		c.drain.idle = make(chan struct{})
	}
	idle := c.drain.idle
	c.signalIdleLocked()
	return idle
}

// DrainUnused calls Drain if Unused is at least least, and reports whether it is. No call can begin between
// the check and Drain.
func (c *Conn) DrainUnused(least time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unusedLocked() < least {
		return false
	}
	c.drain.refuses = true
	return true
}

func (c *Conn) signalIdleLocked() {
	if c.drain.idle != nil && len(c.calls.pending) == c.calls.standing {
		close(c.drain.idle)
		c.drain.idle = nil
	}
}
