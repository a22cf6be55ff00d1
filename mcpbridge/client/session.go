// Package client knows the clients that Orla answers: where a request comes from, the session
// that it belongs to, what its client is asked, and the news that wait for it.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Session is what Orla knows of a client of the eras with sessions, from its initialize to
// its end: a session of Streamable HTTP, a stream of SSE, or stdio.
type Session struct {
	ID        string
	Inbox     *Inbox
	Questions questions
	Done      chan struct{} // closed at its end

	mu     sync.Mutex // guards the fields that follow
	opened bool       // its client has been introduced
	says   wire.Declared
	level  string            // from which on log messages are wanted; "" for none
	calls  map[string]func() // requests in flight, by wire.IDKey; of Streamable HTTP
	ended  bool
}

// New returns the session with an id.
func New(id string) *Session {
	return &Session{ID: id, Inbox: NewInbox(), Done: make(chan struct{}), calls: map[string]func(){}}
}

// Introduce notes what the client says of itself. It reports false for a second time.
func (s *Session) Introduce(says wire.Declared) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened {
		return false
	}
	s.opened, s.says = true, says
	return true
}

// Declared returns what the client has said of itself, and whether it has.
func (s *Session) Declared() (wire.Declared, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.says, s.opened
}

// LoggedFrom is from which level on log messages are wanted; "" for none.
func (s *Session) LoggedFrom() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// SetLevel sets it, and returns what it was. It reports false when the session is over.
func (s *Session) SetLevel(level string) (before string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return "", false
	}
	before, s.level = s.level, level
	return before, true
}

// Add notes a request in flight, which stop ends. taken says that one with its id is.
func (s *Session) Add(id json.RawMessage, stop func()) (taken, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := wire.IDKey(id)
	_, taken = s.calls[key]
	if !taken && !s.ended {
		s.calls[key] = stop
	}
	return taken, s.ended
}

// Remove forgets a request that has been answered.
func (s *Session) Remove(id json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, wire.IDKey(id))
}

// Cancel ends a request in flight.
func (s *Session) Cancel(id json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stop := s.calls[wire.IDKey(id)]; stop != nil {
		stop()
	}
}

// End ends the session, its requests, streams and questions. It reports false if it was over.
func (s *Session) End() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.ended = true
	for _, stop := range s.calls {
		stop()
	}
	close(s.Done)
	return true
}

// Ended reports whether the session is over.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// questions are what a client is asked, in the eras in which it can be.
type questions struct {
	mu     sync.Mutex // guards the fields that follow
	last   int64
	open   map[string]chan *wire.Message // by wire.IDKey
	closed string                        // why none is answered any more; "" while they are
}

// Ask sends a question and waits for its answer, or until ctx ends.
func (q *questions) Ask(ctx context.Context, log *slog.Logger, to Outlet, method string, params json.RawMessage) (json.RawMessage, error) {
	id, answer, closed := q.begin()
	if closed != "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: closed}
	}
	defer q.end(id)
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	head := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":`
	givenUp := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: method + " was given up before the client answered"}
	if err := to.Tell(ctx, wire.Parts{[]byte(head), params, wire.Closing}.Join()); err != nil {
		if ctx.Err() != nil {
			return nil, givenUp
		}
		return nil, ErrCannotBeAsked
	}
	select {
	case m, answered := <-answer:
		if !answered {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: q.why()}
		}
		return answerOf(m)
	case <-ctx.Done():
		// The client may not read: nobody waits for it.
		go func() {
			defer recovered.To(log, "tell a client that it is not asked any more", nil)
			_ = to.Tell(context.WithoutCancel(ctx), wire.Notification(wire.MethodCancelled, json.RawMessage(`{"requestId":`+id+`}`)))
		}()
		return nil, givenUp
	}
}

// answerOf is what a client has answered.
func answerOf(m *wire.Message) (json.RawMessage, error) {
	if m.Failed == nil {
		return m.Result, nil
	}
	refused := &jsonrpc.Error{}
	rawjson.Members(m.Failed, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "code":
			refused.Code, _ = strconv.ParseInt(string(value), 10, 64)
		case "message":
			refused.Message, _ = wire.TextOf(value)
		case "data":
			refused.Data = value
		}
		return true
	})
	refused.Code = cmp.Or(refused.Code, jsonrpc.CodeInternalError)
	return nil, refused
}

func (q *questions) begin() (id string, answer <-chan *wire.Message, closed string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != "" {
		return "", nil, q.closed
	}
	q.last++
	id = strconv.FormatInt(q.last, 10)
	if q.open == nil {
		q.open = map[string]chan *wire.Message{}
	}
	c := make(chan *wire.Message, 1)
	q.open[id] = c
	return id, c, ""
}

func (q *questions) end(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, id)
}

func (q *questions) why() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Answer hands an answer to who waits for it; to nobody if nobody does.
func (q *questions) Answer(m *wire.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := wire.IDKey(m.ID)
	if c := q.open[key]; c != nil {
		delete(q.open, key)
		c <- m
	}
}

// Close gives up what has been asked: the client answers nothing any more.
func (q *questions) Close(why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != "" {
		return
	}
	q.closed = why
	for _, c := range q.open {
		close(c)
	}
	clear(q.open)
}
