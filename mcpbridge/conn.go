package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// conn is a client's connection made of whole messages that come in on a
// channel and go out by a function. It stands in place of the SDK's own
// connections for stdio and SSE: those end at the first malformed message, and
// drop what is not answered yet when their input ends.
type conn struct {
	send func(json.RawMessage) error // writes one message or batch; called by one goroutine at a time
	log  *slog.Logger
	max  int64
	read chan line     // what comes in; closed after the last, if it ever ends
	done chan struct{} // closed by Close
	// newest is false where the transport cannot carry the stateless era.
	newest bool

	closeOnce sync.Once
	queue     []json.RawMessage // the rest of a batch; owned by Read

	writing sync.Mutex // serialises send

	mu       sync.Mutex        // guards the fields that follow
	awaiting map[string]*batch // by the request's id; nil for a lone request
	ended    bool              // the input has ended
	answered chan struct{}     // closed when ended and nothing is awaited
	failed   error             // why a message could not be sent
}

// batch is a JSON-RPC batch that waits for its answers.
type batch struct {
	left    int
	answers []json.RawMessage
}

// line is one message as it came, or the news that one was too long.
type line struct {
	data    []byte
	tooLong bool
}

func newConn(send func(json.RawMessage) error, maxMessage int64, log *slog.Logger) *conn {
	return &conn{
		send:     send,
		log:      log,
		max:      maxMessage,
		read:     make(chan line),
		done:     make(chan struct{}),
		newest:   true,
		awaiting: map[string]*batch{},
		answered: make(chan struct{}),
	}
}

// Connect makes the conn its own transport.
func (c *conn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SupportsProtocolVersion reports whether the transport can carry a version.
func (c *conn) SupportsProtocolVersion(version string) bool {
	return c.newest || version < firstStateless
}

// SessionID is empty: the session is the connection.
func (c *conn) SessionID() string { return "" }

// Read returns the next message. Malformed input is answered here, and the
// connection lives on. At the end of input it first waits until everything
// that was read is answered (SPEC G1).
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		raw, err := c.next(ctx)
		if err != nil {
			return nil, err
		}
		msg, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			c.refuse(ctx, raw, err)
			continue
		}
		return msg, nil
	}
}

// next returns the next raw message, be it a line or a member of a batch.
func (c *conn) next(ctx context.Context) (json.RawMessage, error) {
	for {
		if len(c.queue) > 0 {
			raw := c.queue[0]
			c.queue = c.queue[1:]
			return raw, nil
		}
		select {
		case l, ok := <-c.read:
			if !ok {
				return nil, c.awaitAnswers(ctx)
			}
			if raw := c.take(ctx, l); raw != nil {
				return raw, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
			return nil, io.EOF
		}
	}
}

// take turns a line into a message, queues a batch, or answers what is neither.
func (c *conn) take(ctx context.Context, l line) json.RawMessage {
	data := bytes.TrimSpace(bytes.TrimPrefix(l.data, []byte("\xef\xbb\xbf")))
	switch {
	case l.tooLong:
		c.complain(ctx, nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message is over max_request (%d bytes)", c.max))
	case !json.Valid(data):
		c.complain(ctx, nil, jsonrpc.CodeParseError, "a line is no valid JSON; send one message a line")
	case data[0] == '[':
		var members []json.RawMessage
		if err := json.Unmarshal(data, &members); err != nil || len(members) == 0 {
			c.complain(ctx, nil, jsonrpc.CodeInvalidRequest, "an empty batch")
			return nil
		}
		c.expectBatch(members)
		c.queue = members
	default:
		c.expect(data, nil)
		return data
	}
	return nil
}

// envelope is what has to be known of a message to answer it.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// call reports whether the message wants an answer before the session's end.
// A listening subscription gets its answer only then.
func (e envelope) call() bool {
	return len(e.ID) > 0 && string(e.ID) != "null" && e.Method != "" && e.Method != "subscriptions/listen"
}

func (c *conn) expect(raw json.RawMessage, in *batch) {
	var e envelope
	if json.Unmarshal(raw, &e) != nil || !e.call() {
		return
	}
	if in != nil {
		in.left++
	}
	c.mu.Lock()
	c.awaiting[string(e.ID)] = in
	c.mu.Unlock()
}

func (c *conn) expectBatch(raw []json.RawMessage) {
	in := &batch{}
	for _, r := range raw {
		c.expect(r, in)
	}
}

// awaitAnswers returns io.EOF when everything that was read is answered.
func (c *conn) awaitAnswers(ctx context.Context) error {
	c.mu.Lock()
	if !c.ended {
		c.ended = true
		c.settleLocked()
	}
	c.mu.Unlock()
	select {
	case <-c.answered:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
	}
	return io.EOF
}

// settleLocked closes answered when the input has ended and nothing is awaited.
func (c *conn) settleLocked() {
	if c.ended && len(c.awaiting) == 0 {
		select {
		case <-c.answered:
		default:
			close(c.answered)
		}
	}
}

// refuse answers a message that is JSON but no JSON-RPC.
func (c *conn) refuse(ctx context.Context, raw json.RawMessage, err error) {
	var e envelope
	_ = json.Unmarshal(raw, &e) // what is no object has no id
	c.complain(ctx, e.ID, jsonrpc.CodeInvalidRequest, "not a JSON-RPC 2.0 message: "+err.Error())
}

// complain sends an error response that no handler made.
func (c *conn) complain(ctx context.Context, id json.RawMessage, code int64, text string) {
	c.log.Debug("malformed message", "code", code, "text", text)
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	raw, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0",
		"id":      id,
		"error":   map[string]any{"code": code, "message": text},
	})
	if err == nil {
		err = c.answer(ctx, string(id), raw)
	}
	if err != nil {
		c.log.Debug("answer a malformed message", "err", err)
	}
}

// Write sends a message. It may be called from any goroutine.
func (c *conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	raw, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return c.deliver(ctx, raw)
	}
	id, err := json.Marshal(resp.ID.Raw())
	if err != nil {
		return err
	}
	return c.answer(ctx, string(id), raw)
}

// answer sends a response, or collects it when it belongs to a batch.
func (c *conn) answer(ctx context.Context, id string, raw json.RawMessage) error {
	c.mu.Lock()
	if in := c.awaiting[id]; in != nil {
		in.answers = append(in.answers, raw)
		if in.left--; in.left > 0 {
			delete(c.awaiting, id)
			c.mu.Unlock()
			return nil
		}
		var err error
		if raw, err = json.Marshal(in.answers); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	c.mu.Unlock()
	err := c.deliver(ctx, raw)
	c.mu.Lock()
	delete(c.awaiting, id)
	c.settleLocked()
	c.mu.Unlock()
	return err
}

// deliver sends one message or batch.
func (c *conn) deliver(ctx context.Context, raw json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.writing.Lock()
	err := c.send(raw)
	c.writing.Unlock()
	if err != nil {
		c.mu.Lock()
		c.failed = fmt.Errorf("write to the client: %w", err)
		c.mu.Unlock()
	}
	return err
}

// failure returns why the client could not be written to, if so.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// hangUp ends Read without waiting for answers.
func (c *conn) hangUp() { c.closeOnce.Do(func() { close(c.done) }) }

// Close ends the connection. The streams are the process's own and stay open.
func (c *conn) Close() error {
	c.hangUp()
	return nil
}
