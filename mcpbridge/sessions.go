package mcpbridge

import (
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions knows how long each session of the stateful eras has been idle. The
// SDK's own timer does not count an open event stream as use, and so would
// take sessions from clients that only listen.
type sessions struct {
	server *mcp.Server

	mu    sync.Mutex // guards known
	known map[string]*usage
}

// usage is how a session is used.
type usage struct {
	open int       // requests and streams that are open
	last time.Time // when the last one ended
}

func newSessions(server *mcp.Server) *sessions {
	return &sessions{server: server, known: map[string]*usage{}}
}

// use counts a request of a session as open until the function it returns is called.
func (s *sessions) use(id string) func() {
	if id == "" {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.known[id]
	if u == nil {
		u = &usage{}
		s.known[id] = u
	}
	u.open++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.open--
		u.last = time.Now()
	}
}

// expire ends the sessions that were idle for longer than timeout, and forgets
// those that are gone.
func (s *sessions) expire(timeout time.Duration) {
	oldest := time.Now().Add(-timeout)
	live := s.live()
	var over []*mcp.ServerSession
	s.mu.Lock()
	for id, u := range s.known {
		session, lives := live[id]
		switch {
		case !lives && u.open == 0:
			delete(s.known, id)
		case lives && u.open == 0 && u.last.Before(oldest):
			over = append(over, session)
			delete(s.known, id)
		}
	}
	s.mu.Unlock()
	closeSessions(over)
}

// makeRoom ends the session that was idle longest when there are most already.
func (s *sessions) makeRoom(most int) {
	s.mu.Lock()
	full := len(s.known) >= most
	s.mu.Unlock()
	if !full {
		return
	}
	live := s.live()
	type idle struct {
		id   string
		last time.Time
	}
	var candidates []idle
	s.mu.Lock()
	for id, u := range s.known {
		if _, lives := live[id]; !lives && u.open == 0 {
			delete(s.known, id)
		} else if u.open == 0 {
			candidates = append(candidates, idle{id, u.last})
		}
	}
	slices.SortFunc(candidates, func(a, b idle) int { return a.last.Compare(b.last) })
	// A tenth at a time, so that a flood does not pay for a scan each.
	var over []*mcp.ServerSession
	for _, c := range candidates[:min(len(candidates), max(1, most/10), max(0, len(s.known)-most+max(1, most/10)))] {
		over = append(over, live[c.id])
		delete(s.known, c.id)
	}
	s.mu.Unlock()
	closeSessions(over)
}

// live returns the SDK's sessions by their id.
func (s *sessions) live() map[string]*mcp.ServerSession {
	live := map[string]*mcp.ServerSession{}
	for session := range s.server.Sessions() {
		if id := session.ID(); id != "" {
			live[id] = session
		}
	}
	return live
}

// closeAll ends every session.
func (s *sessions) closeAll() {
	var all []*mcp.ServerSession
	for session := range s.server.Sessions() {
		all = append(all, session)
	}
	closeSessions(all)
}

// closeSessions ends sessions side by side: each waits for its calls.
func closeSessions(all []*mcp.ServerSession) {
	var wg sync.WaitGroup
	for _, session := range all {
		wg.Go(func() { _ = session.Close() }) // its stream is gone with it
	}
	wg.Wait()
}
