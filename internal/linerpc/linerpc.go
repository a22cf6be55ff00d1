// Package linerpc speaks JSON-RPC 2.0 with a process over its stdin and stdout,
// one message a line (RFC 2 §8.2, SPEC D5).
//
//	Call ─► write ─► stdin          stdout ─► lines ─► Reply to its Call
//	                                                └► Handler: notifications, requests, noise
//
// It knows nothing of what the messages mean. Results and params are passed on
// as the bytes that they are. A line that is no message is the Handler's
// business and ends nothing.
//
// Its invariant: reading never waits for anybody, so that a process that writes
// while it does not read cannot be locked up with us.
package linerpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/pace"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/turns"
)

// Stream is one end of a pipe. An *os.File and a net.Conn are Streams.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// Handler takes what the process says unasked. Its methods are called in the
// order of the lines, from the one goroutine that reads, and must not block.
type Handler interface {
	// Notified is called for a notification.
	Notified(method string, params json.RawMessage)
	// Asked is called for a request. Conn.Reply answers it.
	Asked(id json.RawMessage, method string, params json.RawMessage)
	// Unclaimed is called for an answer that no call waits for.
	Unclaimed(id json.RawMessage)
	// Noise is called for a line that is no message, with the reason why. The
	// line is cut when it is long.
	Noise(line []byte, why string)
}

// Options configures a Conn.
type Options struct {
	// MaxMessage bounds a line from the process in bytes. Required.
	MaxMessage int
	// Stall is how long the process may leave a message in the pipe without
	// reading from it. Past it the stream is given up. Required.
	Stall time.Duration
	// Handler is required.
	Handler Handler
	// Clean may change a line of the process's before it is read. If nil, lines are
	// read as they are.
	Clean func(line []byte) []byte
}

// Errors of a Call that tell what became of it.
var (
	// ErrNotSent is in the chain when nothing of the request was sent.
	ErrNotSent = errors.New("the request was not sent")
	// ErrStalled is why a Conn is over whose process does not read.
	ErrStalled = errors.New("the process does not read its stdin")
	// ErrTooLong is in the chain when the answer was over MaxMessage.
	ErrTooLong = errors.New("the answer is too long")
)

// Conn is a connection with one process. Its methods may be called from any
// goroutine, but Serve only once.
type Conn struct {
	in   Stream
	out  Stream
	opts Options

	unasked int // messages of the last line that answered nothing; Serve's own

	made  time.Time
	heard atomic.Int64 // when the last line came, in nanoseconds after made

	writing chan struct{}  // holds a token while a message is being written
	rests   sync.WaitGroup // the goroutines that write what did not fit at once

	waiting, waitingBytes *turns.Shares // of posts
	notes                 *turns.Shares // of the bytes of all notes that wait

	mu       sync.Mutex // guards the fields that follow
	pending  map[int64]*pending
	standing int           // how many of them are; see Request.Standing
	last     int64         // the id given last
	closed   error         // why no more is sent; nil while it is open
	posts    []post        // messages that wait for their turn
	posting  bool          // a goroutine is at them
	refuses  bool          // new calls; see Drain
	idle     chan struct{} // closed at the next moment without pending calls; nil while nobody waits
	used     time.Time     // when the last call ended
	client   string        // whose requests were sent so far; "" before the first one
	shared   bool          // requests of others than client were sent too
	sent     int64         // requests that were written, or nearly
	newest   int64         // the highest place of a client's request that was answered

	overtaken atomic.Bool // see SideBySide

	over chan struct{} // closed with closed set
}

// SideBySide reports whether the process has answered a client's request before
// another that it was sent earlier: it does not work on one after the other.
func (c *Conn) SideBySide() bool { return c.overtaken.Load() }

// pending is a call without an answer.
type pending struct {
	ctx      context.Context // the call's, for who reads its answer
	held     *turns.Held     // what it holds of the room for answers; nil where nobody counts
	events   chan Event
	own      bool         // see Request.Own
	standing bool         // see Request.Standing
	noted    atomic.Int64 // bytes of the notes that wait
	client   string       // see Request.Client
	about    any          // see Request.About
	line     turns.Line   // see Request.Line
	place    int64        // in the order in which requests are written; guarded by Conn.mu
}

// Event is what happens to a call: notes, and then its answer.
type Event struct {
	Method string          // of a note; "" for the answer
	Params json.RawMessage // of a note
	Result json.RawMessage // the answer's result
	Err    error           // a *jsonrpc.Error that the process gave, or why there is no answer
	inHand int64           // bytes of the result that have no room yet
}

// maxNotes is how many notes a call may have waiting for a slow client. Later
// ones are dropped: they say how far things are, and the next one says it better.
const (
	maxNotes     = 64
	maxNoteBytes = 1 << 20
	// maxAllNotes bounds the bytes of all calls' notes, which callers share.
	maxAllNotes = 64 << 20
)

// New returns a Conn that writes to in and reads from out. The streams stay the
// caller's to close.
func New(in, out Stream, opts Options) *Conn {
	return &Conn{
		in: in, out: out, opts: opts,
		writing: make(chan struct{}, 1),
		pending: map[int64]*pending{},
		over:    make(chan struct{}),

		waiting: turns.NewShares(2 * maxPosts), waitingBytes: turns.NewShares(2 * maxPostBytes),
		notes: turns.NewShares(maxAllNotes),

		made: time.Now(),
		used: time.Now(),
	}
}

// Serve reads until the process closes its stdout, or a read deadline passes,
// and returns why it ended. Calls stay pending until Close.
func (c *Conn) Serve() error {
	var unasked pace.Pace
	lines := lineReader{r: c.out, max: c.opts.MaxMessage, dropped: func(n int) { unasked.Wait(c.over, 0, n) }}
	for {
		line, err := lines.next()
		c.heard.Store(int64(time.Since(c.made)))
		c.unasked = 0
		switch {
		case line.cut:
			c.tooLong(line.data, line.tail)
		case len(line.data) > 0:
			c.take(line.data)
		default:
			c.unasked++
		}
		if err != nil {
			return err
		}
		if c.unasked > 0 {
			unasked.Wait(c.over, c.unasked, len(line.data))
		}
	}
}

// Close fails what is pending with why, and everything from now on. It returns
// when no goroutine of the Conn writes any more. Only the first call counts.
func (c *Conn) Close(why error) {
	c.giveUp(why)
	c.mu.Lock()
	for id, p := range c.pending {
		p.events <- Event{Err: why} // a place is kept for it
		delete(c.pending, id)
	}
	c.standing = 0
	c.settleLocked()
	c.mu.Unlock()
	_ = c.in.SetWriteDeadline(time.Unix(1, 0)) // lets go of a write that hangs; a closed stream has none
	c.rests.Wait()
}

// giveUp lets nothing be sent any more. What is pending stays so until Close,
// whose caller knows better why.
func (c *Conn) giveUp(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		c.closed = why
		close(c.over)
	}
}

// Over is closed when the Conn has been closed, or cannot be written to any
// more, which its owner answers with Close.
func (c *Conn) Over() <-chan struct{} { return c.over }

// Err tells why the Conn is over; nil before that.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// InFlight returns the number of calls without an answer.
func (c *Conn) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) - c.standing
}

// Unused returns for how long there has been no call of a client's; 0 while
// there is one.
func (c *Conn) Unused() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unusedLocked()
}

func (c *Conn) unusedLocked() time.Duration {
	for _, p := range c.pending {
		if !p.own {
			return 0
		}
	}
	return time.Since(c.used)
}

// DrainUnused does as Drain if there has been no call of a client's for at least
// so long, which is more than 0, and reports whether: no call can begin between the two.
func (c *Conn) DrainUnused(least time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unusedLocked() < least {
		return false
	}
	c.refuses = true
	return true
}

// Silent returns for how long the process has said nothing.
func (c *Conn) Silent() time.Duration {
	return time.Since(c.made) - time.Duration(c.heard.Load())
}

// Drain refuses calls from now on with ErrNotSent, and returns a channel that is
// closed when none is without an answer.
func (c *Conn) Drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = true
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.settleLocked()
	return idle
}

func (c *Conn) settleLocked() {
	if c.idle != nil && len(c.pending) == c.standing {
		close(c.idle)
		c.idle = nil
	}
}

// Request is one call.
type Request struct {
	Method string
	// Params returns the params, valid JSON on one line, in pieces that nobody
	// changes any more. id is the request's own, which can serve as a progress
	// token. If nil, there are no params.
	Params func(id int64) [][]byte
	// Client names the client that the request is made for. If "", it is nobody's,
	// and Sole does not count it.
	Client string
	// About is kept for Sole and About.
	About any
	// Line is kept for Whose: whose share the request takes of what its process bounds.
	Line turns.Line
	// Note, if not nil, is called for each of the call's notes, in order and
	// before Call returns. It may block.
	Note func(method string, params json.RawMessage)
	// Own says that the request is not a client's: it is no use in the sense of
	// Unused.
	Own bool
	// Standing says that the request may stay without an answer for as long as the
	// connection lasts. InFlight does not count it, and Drain does not wait for it.
	Standing bool
	// Quiet says that the process is not told when the request is not waited for any
	// more.
	Quiet bool
}

// Call makes a request and waits for its answer. When ctx ends first, the
// process is told by notifications/cancelled and the error is ctx's cause; a
// late answer is dropped. An error is a *jsonrpc.Error when the process gave
// one, else it tells why there is no answer.
func (c *Conn) Call(ctx context.Context, req Request) (json.RawMessage, error) {
	notes := 0
	if req.Note != nil {
		notes = maxNotes
	}
	p := &pending{ctx: ctx, held: turns.HeldBy(ctx), events: make(chan Event, notes+1), client: req.Client, about: req.About, line: req.Line, own: req.Own, standing: req.Standing}
	id, err := c.begin(p)
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, p, requestLine(id, req)); err != nil {
		c.forget(id)
		return nil, err
	}
	for {
		select {
		case e := <-p.events:
			if e.Method == "" {
				return p.take(ctx, e)
			}
			if size := int64(len(e.Params)); size > 0 {
				p.noted.Add(-size)
				c.notes.Give(p.line, size)
			}
			req.Note(e.Method, e.Params)
		case <-ctx.Done():
			forgotten := c.forget(id)
			if left := p.noted.Swap(0); left > 0 { // nothing more comes
				c.notes.Give(p.line, left)
			}
			if forgotten && !req.Quiet {
				c.notify(req.Line, "notifications/cancelled", cancelParams(id, context.Cause(ctx)))
			}
			return nil, context.Cause(ctx)
		}
	}
}

// take makes room for an answer.
func (p *pending) take(ctx context.Context, e Event) (json.RawMessage, error) {
	if e.inHand > 0 {
		if err := p.held.Settle(ctx, e.inHand); err != nil {
			return nil, err
		}
	}
	return e.Result, e.Err
}

func cancelParams(id int64, cause error) json.RawMessage {
	return fmt.Appendf(nil, `{"requestId":%d,"reason":%s}`, id, rawjson.Quote(cause.Error()))
}

// Whose returns the Line of the request that has an id, and whether anybody waits for
// its answer.
func (c *Conn) Whose(id int64) (line turns.Line, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	if p == nil {
		return turns.Line{}, false
	}
	return p.line, true
}

// begin gives a call its id.
func (c *Conn) begin(p *pending) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotSent, c.closed)
	}
	if c.refuses {
		return 0, ErrNotSent
	}
	if p.client != "" && p.client != c.client {
		c.shared = c.client != ""
		c.client = p.client
	}
	if p.standing {
		c.standing++
	}
	c.last++
	c.pending[c.last] = p
	return c.last, nil
}

// forget drops a call that nobody waits for any more, and reports whether it
// had no answer yet.
func (c *Conn) forget(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked(id) != nil
}

func (c *Conn) takeLocked(id int64) *pending {
	p := c.pending[id]
	if p != nil {
		delete(c.pending, id)
		if p.standing {
			c.standing--
		}
		if !p.own {
			c.used = time.Now()
		}
		c.settleLocked()
	}
	return p
}

// settle ends the call of an id with its answer, and reports whether there was one.
func (c *Conn) settle(id int64, e Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.takeLocked(id)
	if p == nil {
		return false
	}
	switch {
	case p.own, p.standing:
	case p.place < c.newest:
		c.overtaken.Store(true)
	default:
		c.newest = p.place
	}
	p.events <- e // a place is kept for it
	return true
}

// fewBytes is up to what size a message is one piece: to copy that much is
// cheaper than to write twice.
const fewBytes = 16 << 10

// requestLine is a request in pieces.
func requestLine(id int64, req Request) [][]byte {
	var room [256]byte // most of the time it is copied from
	head := room[:0]
	head = append(head, `{"jsonrpc":"2.0","id":`...)
	head = strconv.AppendInt(head, id, 10)
	head = append(head, `,"method":"`...)
	head = append(head, req.Method...)
	head = append(head, '"')
	if req.Params == nil {
		return [][]byte{append(bytes.Clone(head), "}\n"...)}
	}
	head = append(head, `,"params":`...)
	params := req.Params(id)
	size := len(head) + len("}\n")
	for _, piece := range params {
		size += len(piece)
	}
	if size > fewBytes {
		return append(append([][]byte{bytes.Clone(head)}, params...), []byte("}\n"))
	}
	whole := append(make([]byte, 0, size), head...)
	for _, piece := range params {
		whole = append(whole, piece...)
	}
	return [][]byte{append(whole, "}\n"...)}
}

// Notify sends a notification as soon as the stream is free, and does not wait
// for that. params is valid JSON on one line, or nil.
func (c *Conn) Notify(method string, params json.RawMessage) {
	c.notify(turns.Line{}, method, params)
}

func (c *Conn) notify(whose turns.Line, method string, params json.RawMessage) {
	c.post(whose, messageLine(`"method":"`+method+`"`, `"params":`, params))
}

// Tell does as Notify, but returns when the notification has its turn: what is
// sent after it comes after it.
func (c *Conn) Tell(ctx context.Context, method string, params json.RawMessage) error {
	return c.write(ctx, nil, [][]byte{messageLine(`"method":"`+method+`"`, `"params":`, params)})
}

// Reply answers a request of the process with a result, or with an error.
func (c *Conn) Reply(whose turns.Line, id, result json.RawMessage, refusal *jsonrpc.Error) {
	head := `"id":` + string(id)
	if refusal == nil {
		c.post(whose, messageLine(head, `"result":`, rawjson.Compact(result)))
		return
	}
	raw, err := json.Marshal(refusal)
	if err != nil { // its data is no JSON
		raw, _ = json.Marshal(&jsonrpc.Error{Code: refusal.Code, Message: refusal.Message})
	}
	c.post(whose, messageLine(head, `"error":`, raw))
}

func messageLine(head, key string, value json.RawMessage) []byte {
	line := append([]byte(`{"jsonrpc":"2.0",`), head...)
	if value != nil {
		line = append(append(append(line, ','), key...), value...)
	}
	return append(line, "}\n"...)
}
