package httpfront

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

// sse serves the transport of protocol version 2024-11-05: a GET opens a
// stream of events and names an endpoint, to which messages are POSTed.
type sse struct {
	bridge *mcpbridge.Bridge

	mu    sync.Mutex // guards conns
	conns map[string]sseConn
}

// sseConn is one open stream.
type sseConn struct {
	*stdio.Conn
	caller string   // who opened it; nobody else may post to it
	groups []string // of the caller; with others it is not the same caller to those who decide about calls
}

func newSSE(b *mcpbridge.Bridge) *sse { return &sse{bridge: b, conns: map[string]sseConn{}} }

// stream serves a GET until the client leaves.
func (s *sse) stream(w http.ResponseWriter, r *http.Request, maxMessage int64, from client.Origin) {
	id := rand.Text()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	out := http.NewResponseController(w)
	c := stdio.NewStream(s.bridge, from, maxMessage, func(message wire.Parts) error {
		if err := under(w).writeAll(event(message)); err != nil {
			return err
		}
		return out.Flush()
	})

	s.mu.Lock()
	s.conns[id] = sseConn{c, from.Subject, from.Groups}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, id)
		s.mu.Unlock()
	}()
	if _, err := fmt.Fprintf(w, "event: endpoint\ndata: %s?sessionid=%s\n\n", r.URL.Path, id); err != nil || out.Flush() != nil {
		return
	}
	c.Serve(r.Context())
}

// ownerOf returns whose share a POST uses: that of its stream, if the stream belongs to the caller,
// else that of the caller at its address.
func (s *sse) ownerOf(r *http.Request) turns.Owner {
	if c, ok := s.find(r, subject(r)); ok {
		return c.Owner()
	}
	return client.OwnerOf(subject(r), "", hostOf(r))
}

// find returns the stream that a POST belongs to.
func (s *sse) find(r *http.Request, who string) (sseConn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.conns[r.URL.Query().Get("sessionid")]
	return c, ok && c.caller == who && slices.Equal(c.groups, groupsOf(r))
}

// post passes one message to its stream, which also ends account.
func (s *sse) post(w http.ResponseWriter, r *http.Request, message []byte, account *budget.Account, who string) {
	c, ok := s.find(r, who)
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

// endOf ends the streams of some callers.
func (s *sse) endOf(is func(caller string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if is(c.caller) {
			c.HangUp()
		}
	}
}

// closeAll ends every stream when its requests are answered, or after stdio.LastAnswers.
func (s *sse) closeAll() {
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
