package stdio

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Conn is a client's connection and session on which whole messages come: stdio, or an SSE stream. A
// malformed message does not end it. When its input ends, all requests that were read are still
// answered (SPEC G1).
type Conn struct {
	bridge *mcpbridge.Bridge
	log    *slog.Logger
	from   client.Origin // of all requests
	max    int64         // bytes of a message
	newest bool          // the stateless era may be used

	session *client.Session
	passing sync.Once // begins to send notifications of changes

	send func(wire.Parts) error // sends one message or batch; called by one goroutine at a time; returns at the latest when ctx ends
	out  io.Writer              // takes answers; a write may block until the client reads; nil if send takes them

	ctx     context.Context    // ends with the connection
	end     context.CancelFunc // ends ctx
	calls   sync.WaitGroup     // requests that are being answered
	lines   sync.WaitGroup     // their lines in the log
	workers workers

	stopOnce sync.Once
	stop     chan struct{} // closed when nothing more is read
	writing  chan struct{} // holds a token while send or out is in use
	taken    chan struct{} // receives a token when answers that waited are being written

	mu         sync.Mutex         // guards the fields that follow
	awaiting   map[string]pending // the requests that have no answer yet, by wire.IDKey
	unanswered int                // how many answers the end of input waits for
	ended      bool               // the input has ended
	answered   chan struct{}      // closed when ended and unanswered is 0
	failed     error              // why a message could not be sent
	closed     bool               // no further request begins
	soon       answers
}

// pending is a request that has no answer yet.
type pending struct {
	*mcpbridge.Request
	in      *batch          // nil for a request outside of a batch
	account *budget.Account // until it is answered
	// open marks a subscription. It is answered only at the end of the session, so that the end
	// of input does not wait for it.
	open bool
}

// line is one message as it came, or says that one was too long.
type line struct {
	data    []byte
	tooLong bool
	account *budget.Account // ended by whoever takes the line
}

func newConn(b *mcpbridge.Bridge, from client.Origin, maxMessage int64) *Conn {
	from.Session = rand.Text()
	ctx, end := context.WithCancel(context.Background())
	return &Conn{
		bridge:   b,
		log:      b.Log(),
		from:     from,
		max:      maxMessage,
		newest:   true,
		session:  client.New(from.Session),
		ctx:      ctx,
		end:      end,
		workers:  workers{jobs: make(chan func())},
		stop:     make(chan struct{}),
		writing:  make(chan struct{}, 1),
		taken:    make(chan struct{}, 1),
		awaiting: map[string]pending{},
		answered: make(chan struct{}),
	}
}

// NewStream returns the connection of a client that POSTs its messages, and gets its answers by
// send. Only the eras with sessions can be used on it.
func NewStream(b *mcpbridge.Bridge, from client.Origin, maxMessage int64, send func(wire.Parts) error) *Conn {
	c := newConn(b, from, maxMessage)
	c.send, c.newest = send, false
	return c
}

// Serve returns when the connection has ended, or when reading has stopped and all requests are
// answered, or when ctx ends. Nothing is sent after that.
func (c *Conn) Serve(ctx context.Context) {
	select {
	case <-c.answered:
	case <-c.ctx.Done():
	case <-ctx.Done():
	}
	c.finish()
	c.writing <- struct{}{} // for good
}

// Post takes a message, and ends what it holds. refused says why it is not taken; "" if it is.
func (c *Conn) Post(message []byte, account *budget.Account) (refused string) {
	select {
	case <-c.stop:
		account.End()
		return "the session is ending"
	case <-c.ctx.Done():
		account.End()
		return "the session has ended"
	default:
		c.take(line{data: message, account: account})
		return ""
	}
}

// Owner returns whose share of the bounded resources the connection uses.
func (c *Conn) Owner() turns.Owner { return c.from.Owner() }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// take takes a line: a message, a batch, or something that it refuses. A panic ends the connection,
// since it is not known how much of the line was taken.
func (c *Conn) take(l line) {
	account := l.account
	defer recovered.To(c.log, "read a line of a client's", func(any) { c.HangUp() })
	defer func() { account.End() }() // unless it was passed on; before the connection ends
	data := wire.Trimmed(l.data)
	switch {
	case l.tooLong:
		c.complain(nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is over max_request (%d bytes)", c.max))
	case len(data) == 0:
	case !wire.Valid(data):
		c.complain(nil, jsonrpc.CodeParseError, wire.NotJSON)
	case data[0] == '[':
		c.takeBatch(data, account)
		account = nil
	default:
		m, refused := wire.ReadMessage(data)
		if refused != nil {
			c.complain(m.ID, refused.Code, refused.Message)
			return
		}
		if refusal := c.accept(m, pending{account: account}); refusal != nil {
			c.deliverLogged(wire.Parts{refusal})
		} else if m.Asks() {
			account = nil
		}
	}
}

// accept takes a message, and begins to answer a request. It returns the error response if it
// refuses the request. Otherwise the request ends p.account.
func (c *Conn) accept(m *wire.Message, p pending) (refusal json.RawMessage) {
	switch {
	case m.Answers():
		c.session.Questions.Answer(m)
		return nil
	case m.ID == nil:
		wire.Notified(m, c.cancel)
		return nil
	}
	r, refused := c.bridge.NewRequest(m, c.from, c.session, c)
	if refused == nil && r.Stateless() && !c.newest {
		refused = wire.Unsupported(wire.FirstStateless, wire.Versions[1:])
	}
	if refused != nil {
		return wire.ErrorOf(m.ID, refused)
	}
	r.Begin(c.ctx)
	p.Request, p.open = r, m.Method == wire.MethodListen
	switch c.enter(p) {
	case entered:
	case enterClosed:
		r.Stop()
		p.account.End()
		if p.in != nil {
			p.in.account.End()
		}
		return nil
	case enterTaken:
		r.Stop()
		return wire.ErrorJSON(m.ID, jsonrpc.CodeInvalidRequest, "a request with this id is being answered")
	}
	if m.Method == wire.MethodInitialize { // the next messages need the session
		c.answerRequest(r)
		if _, opened := c.session.Declared(); opened {
			c.passNews()
		}
		return nil
	}
	c.workers.run(c.ctx, func() { c.answerRequest(r) })
	return nil
}

// passNews begins to send notifications of changes to the client.
func (c *Conn) passNews() {
	c.passing.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			return
		}
		c.lines.Go(func() {
			defer recovered.To(c.log, "tell a client what has changed", func(any) { c.HangUp() })
			c.bridge.PassNews(c.ctx, c.session.Inbox, nil, c, client.OwnerOf(c.from.Subject, "", c.from.Host))
		})
	})
}

// answerRequest answers a request. A panic ends the connection, since it is not known how much of
// the answer was written.
func (c *Conn) answerRequest(r *mcpbridge.Request) {
	defer c.lines.Done()
	working := true
	end := func() {
		if working {
			working = false
			r.Stop()
			c.calls.Done()
		}
	}
	defer end()
	defer recovered.To(c.log, "answer a request", func(any) { c.HangUp() })
	c.bridge.Exchange(r, func(response wire.Parts, _ int64, release func()) {
		if r.Method != wire.MethodListen && r.Cancelled() || c.ctx.Err() != nil {
			// "Receivers of cancellation notifications SHOULD … not send a
			// response" (MCP, Cancellation). A client that left needs none.
			response = nil
		}
		end() // before the write, which may block; see Serve
		c.answer(r.ID, response, release)
	})
}

// entering is the result of enter.
type entering int

const (
	entered     entering = iota
	enterTaken           // a request with the same id has no answer yet
	enterClosed          // the connection is over
)

// enter notes that a request wants an answer.
func (c *Conn) enter(p pending) entering {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := wire.IDKey(p.ID)
	if c.closed {
		return enterClosed
	}
	if _, taken := c.awaiting[key]; taken {
		return enterTaken
	}
	c.awaiting[key] = p
	if p.in != nil {
		p.in.left++
	}
	if !p.open {
		c.unanswered++
	}
	c.calls.Add(1)
	c.lines.Add(1)
	return entered
}

// cancel ends the request that a notification cancels.
func (c *Conn) cancel(id json.RawMessage) {
	c.mu.Lock()
	p := c.awaiting[wire.IDKey(id)]
	c.mu.Unlock()
	if p.Request != nil && p.Method != wire.MethodInitialize { // which MUST NOT be cancelled
		p.Cancel()
	}
}

// release ends what requests without an answer hold, when the connection has ended.
func (c *Conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.awaiting {
		p.account.End()
		if p.in != nil {
			p.in.account.End()
		}
	}
}

// endInput notes that nothing more will be read, and ends the questions to the client.
func (c *Conn) endInput() {
	c.mu.Lock()
	c.ended = true
	c.endIfAnsweredLocked()
	c.mu.Unlock()
	c.session.Questions.Close("the client has ended its input, and so cannot answer")
}

// endIfAnsweredLocked closes answered when the input has ended and nothing is awaited.
func (c *Conn) endIfAnsweredLocked() {
	if c.ended && c.unanswered == 0 {
		select {
		case <-c.answered:
		default:
			close(c.answered)
		}
	}
}

// complain sends an error response that belongs to no request.
func (c *Conn) complain(id json.RawMessage, code int64, text string) {
	c.log.Debug("malformed message", "code", code, "text", text)
	c.deliverLogged(wire.Parts{wire.ErrorJSON(id, code, text)})
}

// Tell implements client.Outlet.
func (c *Conn) Tell(ctx context.Context, message json.RawMessage) error {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return client.ErrHungUp
	}
	return client.SendWithin(ctx, func() error { return c.write(wire.Parts{message}) })
}

// deliverLogged sends a message whose error nobody waits for.
func (c *Conn) deliverLogged(message wire.Parts) {
	if err := c.deliver(message); err != nil {
		c.log.Debug("answer a malformed message", "err", err)
	}
}

// deliver sends one message or batch. If that fails, the client has left, and the connection ends.
func (c *Conn) deliver(message wire.Parts) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.ctx.Done():
		return client.ErrHungUp
	}
	return c.write(message)
}

// write sends one message or batch. The caller has the token of writing.
func (c *Conn) write(message wire.Parts) error {
	err := c.send(message)
	<-c.writing
	if err != nil && !errors.Is(err, client.ErrHungUp) {
		c.broken(err)
	}
	return err
}

// broken ends a connection that cannot be written to.
func (c *Conn) broken(err error) {
	c.mu.Lock()
	if c.failed == nil {
		c.failed = fmt.Errorf("write to the client: %w", err)
	}
	c.mu.Unlock()
	c.HangUp()
}

// failure returns why a message could not be sent; nil if all could.
func (c *Conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// StopReading takes no further messages. The connection ends when all requests are answered.
func (c *Conn) StopReading() {
	c.stopOnce.Do(func() {
		close(c.stop)
		c.endInput()
	})
}

// HangUp ends the connection and the requests in flight, without waiting for answers.
func (c *Conn) HangUp() { c.end() }

// finish ends the connection, and waits for its requests.
func (c *Conn) finish() {
	c.HangUp() // ends the goroutines that read and write
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.bridge.EndSession(c.session)
	c.calls.Wait()
	c.release()
	c.awaitLog()
}

// awaitLog waits until ended requests are logged, for LastAnswers at most: a request is logged after
// its answer is written, and the write may block.
func (c *Conn) awaitLog() { pace.Await(nil, &c.lines, LastAnswers) }
