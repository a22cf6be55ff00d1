package mcpbridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/recovered"
	"github.com/orla-project/orla/internal/turns"
)

// errHungUp is why nothing is sent any more.
var errHungUp = errors.New("the connection is closed")

// conn is a client's connection made of whole messages that come in on a
// channel and go out by a function. It stands in place of the SDK's own
// connections for stdio and SSE: those end at the first malformed message, and
// drop what is not answered yet when their input ends.
type conn struct {
	send  func(json.RawMessage) error // writes one message or batch; called by one goroutine at a time; returns when done is closed
	out   io.Writer                   // takes the answers of plain calls, and may hang for as long as the client does; nil where send does
	log   *slog.Logger
	max   int64
	extra *mcp.RequestExtra // goes with every request; may be nil
	read  chan line         // what comes in; closed after the last, if it ever ends
	stop  chan struct{}     // closed when no more is to be read
	done  chan struct{}     // closed by Close
	// newest is false where the transport cannot carry the stateless era.
	newest bool
	bridge *Bridge
	id     string // of the session, which is the connection
	line   turns.Line

	ctx   context.Context    // ends with the connection; for the calls that do not go through the SDK
	end   context.CancelFunc // ends ctx
	plain sync.WaitGroup     // those calls
	lines sync.WaitGroup     // their lines in the log
	jobs  chan func()        // given to a goroutine that is idle; see run
	idle  atomic.Int32       // those goroutines

	stopOnce, closeOnce sync.Once
	queue               []jsonrpc.Message // came in and was not read yet; owned by Read

	writing chan struct{} // holds a token while send or out is at work

	mu         sync.Mutex             // guards the fields that follow
	awaiting   map[jsonrpc.ID]pending // the requests that have no answer yet
	unanswered int                    // answers that the end of input waits for
	ended      bool                   // the input has ended
	answered   chan struct{}          // closed when ended and unanswered is 0
	question   chan struct{}          // holds a token when asked has grown
	failed     error                  // why a message could not be sent
	over       bool                   // no plain call begins any more
	opened     bool                   // a session with a handshake has begun
	client     client                 // what its client has said of itself
	asked      []jsonrpc.ID           // the questions to the client that have no answer yet
	soon       answers
}

// pending is a request that has no answer yet.
type pending struct {
	in *batch // nil for a lone request
	// open marks a subscription, whose answer is the end of the session: the
	// end of input does not wait for it.
	open bool
	// opens marks an initialize: its success begins the session.
	opens bool
	// client is what an initialize says of its client.
	client client
	// meta is what a plain call of the stateless era says of its client, to be
	// learnt when the SDK has found it in order.
	meta json.RawMessage
	// cancel ends a plain call that does not go through the SDK.
	cancel context.CancelFunc
	held   *share // until it is answered
}

// line is one message as it came, or the news that one was too long.
type line struct {
	data    []byte
	tooLong bool
	held    *share // who takes the line ends it
}

func newConn(b *Bridge, caller string, maxMessage int64) *conn {
	id := rand.Text()
	ctx, end := context.WithCancel(context.Background())
	return &conn{
		bridge:   b,
		id:       id,
		line:     lineOf(caller, id, ""),
		ctx:      ctx,
		end:      end,
		log:      b.log,
		max:      maxMessage,
		read:     make(chan line),
		writing:  make(chan struct{}, 1),
		jobs:     make(chan func()),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		newest:   true,
		awaiting: map[jsonrpc.ID]pending{},
		answered: make(chan struct{}),
		question: make(chan struct{}, 1),
	}
}

// Connect makes the conn its own transport.
func (c *conn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SupportsProtocolVersion reports whether the transport can carry a version.
func (c *conn) SupportsProtocolVersion(version string) bool {
	return c.newest || version < firstStateless
}

// SessionID tells the connection from others. No client ever sees it.
func (c *conn) SessionID() string { return c.id }

// Read returns the next message. Malformed input is answered here, and the
// connection lives on. At the end of input it first waits until everything
// that was read is answered (SPEC G1).
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for len(c.queue) == 0 {
		select {
		case <-c.stop: // before more is taken from a client that never pauses
			return c.awaitAnswers(ctx)
		default:
		}
		select {
		case l, ok := <-c.read:
			if !ok {
				return c.awaitAnswers(ctx)
			}
			c.take(l)
		case <-c.stop:
			return c.awaitAnswers(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
			return nil, io.EOF
		}
	}
	msg := c.queue[0]
	c.queue = c.queue[1:]
	return msg, nil
}

// take queues the messages of a line, or answers what is none. The SDK calls it, in a
// goroutine that recovers nothing. A panic ends the connection: nobody knows how much of
// the line is queued.
func (c *conn) take(l line) {
	held := l.held
	defer func() { held.end() }() // unless somebody else is to
	defer recovered.To(c.log, "read a line of a client's", func(any) { c.hangUp() })
	data := bytes.TrimSpace(bytes.TrimPrefix(l.data, []byte("\xef\xbb\xbf")))
	switch {
	case l.tooLong:
		c.complain(nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is over max_request (%d bytes)", c.max))
	case len(data) == 0:
	case !rawjson.Valid(data):
		c.complain(nil, jsonrpc.CodeParseError, "a line is no valid JSON; send one message a line")
	case data[0] == '[':
		c.takeBatch(data, held)
		held = nil
	default:
		if msg, refusal := c.accept(data, nil); msg != nil {
			c.queue = append(c.queue, msg)
			held = c.keep(msg, held)
		} else if refusal != nil {
			c.deliverLogged(refusal)
		}
	}
}

// keep makes a share that of a request until it is answered, and returns what is left of it.
func (c *conn) keep(msg jsonrpc.Message, held *share) *share {
	req, ok := msg.(*jsonrpc.Request)
	if !ok || held == nil {
		return held
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, awaited := c.awaiting[req.ID]
	if !awaited {
		return held
	}
	p.held = held
	c.awaiting[req.ID] = p
	return nil
}

// accept decodes a message and notes that it wants an answer, or returns the
// error that refuses it. A panic over a request fails it alone. Over any other message
// it ends the connection, since who waits for that message cannot be told.
func (c *conn) accept(raw json.RawMessage, in *batch) (msg jsonrpc.Message, refusal json.RawMessage) {
	if id, odd := oddID(raw); odd {
		return nil, errorJSON(id, jsonrpc.CodeInvalidRequest, "an id must be a string or an integer that every client can hold")
	}
	defer recovered.To(c.log, "read a message of a client's", func(any) {
		msg, refusal = nil, nil
		if isRequest(raw) {
			refusal = errorOf(idOf(raw), internalError())
		} else {
			c.hangUp()
		}
	})
	raw = withoutIcons(bytes.TrimSpace(raw))
	if over := excess(raw); over != "" {
		return nil, errorJSON(idOf(raw), jsonrpc.CodeInvalidParams, over)
	}
	var err error
	msg, err = jsonrpc.DecodeMessage(c.bridge.carrier.load(raw))
	if err != nil {
		return nil, errorJSON(idOf(raw), jsonrpc.CodeInvalidRequest, "not a JSON-RPC 2.0 message")
	}
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		if resp, answers := msg.(*jsonrpc.Response); answers {
			c.mu.Lock()
			c.asked = slices.DeleteFunc(c.asked, func(id jsonrpc.ID) bool { return id == resp.ID })
			c.mu.Unlock()
		}
		return msg, nil
	}
	if c.extra != nil {
		req.Extra = c.extra
	}
	if !req.IsCall() {
		if req.Method == methodCancelled && c.cancelPlain(raw) {
			return nil, nil
		}
		return msg, nil
	}
	if !slices.Contains(methods, req.Method) {
		return nil, errorJSON(rawID(req.ID), jsonrpc.CodeMethodNotFound, fmt.Sprintf("method not found: %q", req.Method))
	}
	p := pending{in: in, open: req.Method == methodListen, opens: req.Method == methodInitialize}
	switch req.Method {
	case methodInitialize:
		p.client = introduced(raw)
	case methodCall:
		if plain, ok := parsePlain(raw); ok {
			p.meta = plain.meta
		}
	}
	if !c.expect(req.ID, p) {
		return nil, errorJSON(rawID(req.ID), jsonrpc.CodeInvalidRequest, "a request with this id is being answered")
	}
	return msg, nil
}

// expect notes that a request wants an answer. It reports false when one with
// the same id has none yet.
func (c *conn) expect(id jsonrpc.ID, p pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.awaiting[id]; taken {
		return false
	}
	c.awaiting[id] = p
	if p.in != nil {
		p.in.left++
	}
	if !p.open {
		c.unanswered++
	}
	return true
}

// letGo ends what the requests hold that will get no answer any more: the
// connection is over.
func (c *conn) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.awaiting {
		p.held.end()
		if p.in != nil {
			p.in.held.end()
		}
	}
}

// awaitAnswers returns io.EOF when everything that was read is answered. The
// client answers no questions any more, so until then it refuses them for it.
func (c *conn) awaitAnswers(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if refusal := c.refuseQuestion(); refusal != nil {
			return refusal, nil
		}
		select {
		case <-c.answered:
			return nil, io.EOF
		case <-c.question:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
			return nil, io.EOF
		}
	}
}

// refuseQuestion notes the end of input, and returns an answer to a question
// that will get none.
func (c *conn) refuseQuestion() jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		c.settleLocked()
	}
	if len(c.asked) == 0 {
		return nil
	}
	id := c.asked[0]
	c.asked = c.asked[1:]
	return &jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client has ended its input, and so cannot answer"}}
}

// ask notes that a question goes to the client.
func (c *conn) ask(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, id)
	select {
	case c.question <- struct{}{}:
	default:
	}
}

// settleLocked closes answered when the input has ended and nothing is awaited.
func (c *conn) settleLocked() {
	if c.ended && c.unanswered == 0 {
		select {
		case <-c.answered:
		default:
			close(c.answered)
		}
	}
}

// complain sends an error response that belongs to no request.
func (c *conn) complain(id json.RawMessage, code int64, text string) {
	c.log.Debug("malformed message", "code", code, "text", text)
	c.deliverLogged(errorJSON(id, code, text))
}

// Write sends a message. It may be called from any goroutine: also from those of the
// SDK, which recover nothing. A panic ends the connection.
func (c *conn) Write(ctx context.Context, msg jsonrpc.Message) (err error) {
	defer recovered.To(c.log, "write to a client", func(any) {
		c.hangUp()
		err = errHungUp
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		c.ask(req.ID)
	}
	resp, ok := msg.(*jsonrpc.Response)
	if ok && resp.Error != nil {
		msg = &jsonrpc.Response{ID: resp.ID, Error: presentable(resp.Error)}
	}
	raw, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	if !ok {
		return c.deliver(raw)
	}
	if resp.Error == nil {
		c.learn(resp.ID)
	}
	whole, other := c.bridge.standIns.replaced(raw)
	if other {
		raw = whole.join()
	}
	return c.answer(resp.ID, raw)
}

// answer sends a response, or collects it when it belongs to a batch.
func (c *conn) answer(id jsonrpc.ID, raw json.RawMessage) error {
	c.mu.Lock()
	p, awaited := c.awaiting[id]
	p.held.end()
	delete(c.awaiting, id) // first, since the client may use the id again at once
	if p.in != nil {
		raw = p.in.add(raw)
	}
	c.mu.Unlock()
	var err error
	if raw != nil {
		err = c.deliver(raw)
	}
	if awaited && !p.open {
		c.mu.Lock()
		c.unanswered--
		c.settleLocked()
		c.mu.Unlock()
	}
	return err
}

// deliverLogged sends what no handler waits for.
func (c *conn) deliverLogged(raw json.RawMessage) {
	if err := c.deliver(raw); err != nil {
		c.log.Debug("answer a malformed message", "err", err)
	}
}

// deliver sends one message or batch. A client that cannot be written to has
// left: the connection ends.
func (c *conn) deliver(raw json.RawMessage) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		return errHungUp
	}
	err := c.send(raw)
	<-c.writing
	if err != nil && !errors.Is(err, errHungUp) {
		c.broken(err)
	}
	return err
}

// broken ends a connection that cannot be written to.
func (c *conn) broken(err error) {
	c.mu.Lock()
	if c.failed == nil {
		c.failed = fmt.Errorf("write to the client: %w", err)
	}
	c.mu.Unlock()
	c.hangUp()
}

// failure returns why the client could not be written to, if so.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// stopReading makes Read take no more, and end when what it took is answered.
func (c *conn) stopReading() { c.stopOnce.Do(func() { close(c.stop) }) }

// hangUp ends Read without waiting for answers, and the calls in flight that
// do not go through the SDK.
func (c *conn) hangUp() {
	c.closeOnce.Do(func() {
		close(c.done)
		c.end()
	})
}

// Close ends the connection. The streams are the process's own and stay open.
func (c *conn) Close() error {
	c.hangUp()
	return nil
}
