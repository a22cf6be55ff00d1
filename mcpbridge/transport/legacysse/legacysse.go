// Package legacysse serves the transport of protocol version 2024-11-05: a GET opens a
// stream of events and names an endpoint, to which messages are POSTed.
package legacysse

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/transport/stdio"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Streams are the open ones. Their methods may be called from any goroutine.
type Streams struct {
	bridge *mcpbridge.Bridge

	mu    sync.Mutex // guards conns
	conns map[string]conn
}

// Caller is whose a request is: "" without authentication.
type Caller struct {
	Name   string
	Groups []string // with others it is not the same caller to those who decide about calls
}

func (c Caller) is(other Caller) bool {
	return c.Name == other.Name && slices.Equal(c.Groups, other.Groups)
}

// conn is one open stream.
type conn struct {
	*stdio.Conn
	by Caller // who opened it; nobody else may post to it
}

// New returns Streams of which none is open.
func New(b *mcpbridge.Bridge) *Streams { return &Streams{bridge: b, conns: map[string]conn{}} }

// Serve serves a GET until the client leaves. send sends a message as an event.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, maxMessage int64, from client.Origin, send func(wire.Parts) error) {
	id := rand.Text()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	c := stdio.NewStream(s.bridge, from, maxMessage, send)

	s.mu.Lock()
	s.conns[id] = conn{c, Caller{from.Subject, from.Groups}}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, id)
		s.mu.Unlock()
	}()
	if _, err := fmt.Fprintf(w, "event: endpoint\ndata: %s?sessionid=%s\n\n", r.URL.Path, id); err != nil || http.NewResponseController(w).Flush() != nil {
		return
	}
	c.Serve(r.Context())
}

// OwnerOf returns whose share a POST uses: that of its stream. It reports false if the caller has none of that name.
func (s *Streams) OwnerOf(r *http.Request, by Caller) (turns.Owner, bool) {
	c, ok := s.find(r, by)
	if !ok {
		return turns.Owner{}, false
	}
	return c.Owner(), true
}

// find returns the stream that a POST belongs to.
func (s *Streams) find(r *http.Request, by Caller) (conn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.conns[r.URL.Query().Get("sessionid")]
	return c, ok && c.by.is(by)
}

// Post passes one message to its stream, which also ends account.
func (s *Streams) Post(w http.ResponseWriter, r *http.Request, message []byte, account *budget.Account, by Caller) {
	c, ok := s.find(r, by)
	if !ok {
		http.Error(w, "session not found", http.StatusNotFound)
		return
	}
	if refused := c.Post(message, account.PassOn()); refused != "" {
		http.Error(w, refused, http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// EndOf ends the streams of some callers.
func (s *Streams) EndOf(is func(caller string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if is(c.by.Name) {
			c.HangUp()
		}
	}
}

// CloseAll ends every stream when its requests are answered, or after stdio.LastAnswers.
func (s *Streams) CloseAll() {
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, c := range open {
		c.StopReading()
	}
	grace, cancel := context.WithTimeout(context.Background(), stdio.LastAnswers)
	defer cancel()
	for _, c := range open {
		select {
		case <-c.Done():
		case <-grace.Done():
		}
		c.HangUp()
	}
}
