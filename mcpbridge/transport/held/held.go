// Package held keeps the events of an answer while its client may come back for them (SPEC Q2). A client whose
// connection broke names the last event that it got, in Last-Event-ID, and gets those after it.
package held

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// maxBytes bounds what is held in all, in bytes. A caller may have as much as it leaves free, and a session half of that.
	maxBytes = 32 << 20
	// maxAnswer bounds one event. A larger answer is not held.
	maxAnswer = 8 << 20
	// maxBefore bounds the events of a stream before its answer. The oldest ones are dropped.
	maxBefore = 256 << 10
	// each is about what a stream takes beside its events.
	each = 512
	// Keep is how long a stream is held after its request has ended.
	Keep = time.Minute
	// maxID bounds the id of a request that its events name, in bytes.
	maxID = 256
)

// Room is what all streams have together.
type Room struct{ bytes *turns.Shares }

// NewRoom returns a Room.
func NewRoom() *Room { return &Room{turns.NewShares(maxBytes)} }

// Session has the streams of one session. Its methods may be called from any goroutine.
type Session struct {
	room *Room
	mu   sync.Mutex // guards of
	of   map[string]*Stream
}

// Session returns one without streams.
func (r *Room) Session() *Session { return &Session{room: r} }

// Open begins a stream for the answer to a request with an id, as the share of an owner. It returns nil if there is no room.
// The caller calls End. Before that, taken is called once when the connection of the request is not to write any more; it must not wait.
func (s *Session) Open(id json.RawMessage, owner turns.Owner, taken func()) *Stream {
	if len(id) > maxID || !s.room.bytes.Try(owner, each) {
		return nil
	}
	one := &Stream{of: s, owner: owner, writer: writer{taken: taken}, name: rand.Text(), request: base64.RawURLEncoding.EncodeToString(id), size: each}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*Stream{}
	}
	s.of[one.name] = one
	return one
}

// Find returns the stream of an event, and the event's number. The stream is nil if it is not held.
func (s *Session) Find(event string) (one *Stream, number int) {
	name, number, _, _ := parse(event)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[name], number
}

// Lost returns the answer to the request of an event whose stream is not held; nil if the event does not say which request.
func Lost(event string) json.RawMessage {
	_, _, request, ok := parse(event)
	id, err := base64.RawURLEncoding.DecodeString(request)
	if !ok || err != nil || len(id) == 0 || len(id) > maxID || !rawjson.Valid(id) || bytes.IndexByte(idBegins, id[0]) < 0 {
		return nil
	}
	return wire.ErrorOf(id, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the connection broke, and the answer is not held any more; the request may have been carried out"})
}

// IsEvent reports whether a text can be the id of an event of a stream.
func IsEvent(text string) bool {
	_, _, _, ok := parse(text)
	return ok
}

// idBegins has what the id of a request may begin with: it is a text or a number.
var idBegins = []byte(`"-0123456789`)

// prefix begins the ids of events.
const prefix = "answer"

// parse reads the id of an event: a prefix, the name of the stream, the number of the event, and the id of the request.
func parse(event string) (name string, number int, request string, ok bool) {
	const parts = 4
	p := strings.Split(event, ".")
	if len(p) != parts || p[0] != prefix {
		return "", 0, "", false
	}
	number, err := strconv.Atoi(p[2])
	return p[1], number, p[3], err == nil && number >= 0
}
