// Package client describes the clients of Orla: where a request comes from, its session, the
// questions to its client, and the notifications that wait for it.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
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

	mu     sync.Mutex    // guards the fields that follow
	done   chan struct{} // closed at its end; made when it is asked for
	says   wire.Declared
	level  string            // the least level of log messages that it wants; "" for none
	calls  map[string]func() // requests in flight, by wire.IDKey; of Streamable HTTP
	opened bool              // its client has been introduced
	ended  bool
}

// New returns a session with an id.
func New(id string) *Session {
	return &Session{ID: id, Inbox: NewInbox()}
}

// Done returns a channel that is closed at the end of the session.
func (s *Session) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil { // most sessions have no stream
		s.done = make(chan struct{})
		if s.ended {
			close(s.done)
		}
	}
	return s.done
}

// Introduce keeps what the client has declared in its initialize. It reports false if it was
// called before.
func (s *Session) Introduce(says wire.Declared) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened {
		return false
	}
	s.opened, s.says = true, says
	return true
}

// Declared returns what the client has declared, and whether Introduce was called.
func (s *Session) Declared() (wire.Declared, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.says, s.opened
}

// firstPrimed is the first version of the protocol in which an event of a stream may have no message. Older clients take each for a message.
const firstPrimed = "2025-11-25"

// Primed reports whether the client takes events without a message.
func (s *Session) Primed() bool {
	says, _ := s.Declared()
	return says.Version >= firstPrimed
}

// LoggedFrom returns the least level of log messages that the client wants; "" for none.
func (s *Session) LoggedFrom() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// SetLevel sets this level, and returns the previous one. It reports false if the session has
// ended.
func (s *Session) SetLevel(level string) (before string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return "", false
	}
	before, s.level = s.level, level
	return before, true
}

// Add adds a request in flight, which stop ends. taken says that there is one with this id
// already, ended that the session is over.
func (s *Session) Add(id json.RawMessage, stop func()) (taken, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := wire.IDKey(id)
	_, taken = s.calls[key]
	if !taken && !s.ended {
		if s.calls == nil {
			s.calls = map[string]func(){}
		}
		s.calls[key] = stop
	}
	return taken, s.ended
}

// Remove removes a request that has been answered.
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

// End ends the session, with its requests and streams. It reports false if it had ended before.
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
	if s.done != nil {
		close(s.done)
	}
	return true
}

// Ended reports whether the session has ended.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// questions are the requests of the server to a client, in the eras with sessions.
type questions struct {
	mu     sync.Mutex                    // guards the fields that follow
	last   int64                         // the last question's id; 0 before the first
	open   map[string]chan *wire.Message // by wire.IDKey
	closed string                        // why no question can be asked any more; "" while one can
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
		// In a goroutine, since the client may not read.
		go func() {
			defer recovered.To(log, "tell a client that it is not asked any more", nil)
			_ = to.Tell(context.WithoutCancel(ctx), wire.Notification(wire.MethodCancelled, json.RawMessage(`{"requestId":`+id+`}`)))
		}()
		return nil, givenUp
	}
}

// answerOf returns the result, or the error, of a client's response.
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
	if q.last == 0 {
		q.last = randomStart()
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

// randomStart returns the number that the ids of a session's questions begin after. It is random, since a session can go on in
// another process: a late answer to a question of the process before must not be taken for the answer to another question.
// It has 30 bits, since some clients keep ids in 32.
func randomStart() int64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return int64(binary.BigEndian.Uint32(b[:]) >> 2)
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

// Answer passes a response of the client to the question with its id, if there is one.
func (q *questions) Answer(m *wire.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := wire.IDKey(m.ID)
	if c := q.open[key]; c != nil {
		delete(q.open, key)
		c <- m
	}
}

// TooLarge ends the question whose answer is larger than a message of a client may be. It reads the beginning of that message,
// if a question is open. If no id stands before the result there, the only open question is meant.
func (q *questions) TooLarge(message io.Reader, limit int64) {
	only, open := q.only()
	if !open {
		return
	}
	const enough = 512
	head := make([]byte, enough)
	n, _ := io.ReadFull(message, head) // of what cannot be read nothing is known
	h := rawjson.ReadHead(head[:n])
	if h.ID == nil {
		h.ID = only
	}
	if h.ID == nil || !h.Answers {
		return
	}
	why := fmt.Sprintf("the answer of the client is over max_request (%d bytes)", limit)
	q.Answer(&wire.Message{ID: h.ID, Failed: fmt.Appendf(nil, `{"code":%d,"message":%s}`, jsonrpc.CodeInternalError, rawjson.Quote(why))})
}

// only returns the id of the only open question, nil if there are others, and whether one is open.
func (q *questions) only() (id json.RawMessage, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.open) == 1 {
		for id := range q.open {
			return json.RawMessage(id), true
		}
	}
	return nil, len(q.open) > 0
}

// Close ends all questions, and refuses new ones. why is the text of their error.
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
