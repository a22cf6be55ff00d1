package mcpbridge

import (
	"context"
	"net/http"
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

	wake chan struct{} // holds a token when over is not empty

	mu      sync.Mutex // guards the fields that follow
	known   map[string]*usage
	opening int                  // those that have room, and are not known yet
	streams map[*stream]bool     // that count as sessions: of SSE, and subscriptions/listen
	over    []*mcp.ServerSession // to be closed by Serve
	ending  map[string]bool      // the ids of those, until they are closed
}

// usage is how a session is used.
type usage struct {
	open int       // requests and streams that are open
	last time.Time // when the last one ended

	real  bool                          // a request that names it has been answered
	gone  bool                          // its client has ended it, or it was not there
	ours  bool                          // we saw it begin, and nobody has ended it
	user  string                        // who began it
	party string                        // whose room it takes; see admit
	says  client                        // what its client has said of itself
	calls map[string]context.CancelFunc // plain calls in flight, by their ids as they came
}

func newSessions(server *mcp.Server) *sessions {
	return &sessions{server: server, streams: map[*stream]bool{}, known: map[string]*usage{}, ending: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// use counts a request of a session as open until the function it returns is
// called with the response. It is false for a session of another user, which nothing
// may reach or keep alive, and for one that is being ended, in which the SDK would
// answer nothing.
func (s *sessions) use(id, user string) (func(*response), bool) {
	if id == "" {
		return func(*response) {}, true
	}
	return s.useSome(id, user, false)
}

// useOwn is use of a session that has begun and not ended, which user began: another
// one is not there, and does not become known.
func (s *sessions) useOwn(id, user string) (func(*response), bool) {
	if id == "" {
		return func(*response) {}, true
	}
	return s.useSome(id, user, true)
}

func (s *sessions) useSome(id, user string, own bool) (func(*response), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending[id] {
		return nil, false
	}
	u := s.known[id]
	if own && (u == nil || !u.ours) {
		return nil, false
	}
	if u != nil && (u.ours || u.user != "") && u.user != user {
		return nil, false
	}
	if u == nil {
		u = &usage{}
		s.known[id] = u
	}
	u.open++
	return func(out *response) {
		out.mu.Lock()
		status := out.status
		out.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		u.open--
		u.last = time.Now()
		u.gone = u.gone || status == http.StatusNotFound || status == http.StatusNoContent
		u.real = u.real || status < http.StatusBadRequest
		if (u.gone || !u.real) && u.open == 0 && s.known[id] == u {
			delete(s.known, id) // a client may send any id it likes
		}
	}, true
}

// count returns how many sessions and streams there are.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) + len(s.streams)
}

// opened notes that a session has begun, and whose it is.
func (s *sessions) opened(id, user, party string, says client) {
	says.task = sessionTask(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.known[id]; u != nil {
		u.ours, u.user, u.party, u.says = true, user, party, says
	}
}

// closing notes that a client ends its session, and ends its plain calls.
func (s *sessions) closing(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.known[id]; u != nil {
		u.ours = false
		u.endCalls()
	}
}

// endCalls ends the plain calls in flight. The caller holds the lock.
func (u *usage) endCalls() {
	for _, end := range u.calls {
		end()
	}
}

// endOf has the sessions of some callers ended, with their plain calls.
func (s *sessions) endOf(is func(caller string) bool) {
	var over []*mcp.ServerSession
	s.mu.Lock()
	live := s.liveLocked()
	for id, u := range s.known {
		if !is(u.user) {
			continue
		}
		u.endCalls()
		if session := live[id]; session != nil {
			over = append(over, session)
			delete(s.known, id)
			s.ending[id] = true
		}
	}
	s.mu.Unlock()
	s.end(over)
}

// owns reports whether user may use a session that has begun and not ended, and
// what its client has said of itself.
func (s *sessions) owns(id, user string) (client, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.known[id]
	if u == nil || !u.ours || u.user != user {
		return client{}, false
	}
	return u.says, true
}

// begin counts a plain call of a session in, until end is called. Its context ends
// with the call's cancellation or the session, and not with ctx: a client that leaves
// has not cancelled. taken says that one with the same id is in flight.
func (s *sessions) begin(ctx context.Context, id, call string) (_ context.Context, end func(), taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.known[id]
	if u == nil { // it ended this very moment; the call may still be answered
		return ctx, func() {}, false
	}
	if _, taken = u.calls[call]; taken {
		return nil, nil, true
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if u.calls == nil {
		u.calls = map[string]context.CancelFunc{}
	}
	u.calls[call] = cancel
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(u.calls, call)
	}, false
}

// cancel ends a plain call in flight of a user's session, and reports whether there is one.
func (s *sessions) cancel(id, user, call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.known[id]
	if u == nil || u.user != user {
		return false
	}
	end, ok := u.calls[call]
	if ok {
		end()
	}
	return ok
}

// expire has the sessions ended that were idle for longer than timeout, and
// forgets those that are gone.
func (s *sessions) expire(timeout time.Duration) {
	oldest := time.Now().Add(-timeout)
	var over []*mcp.ServerSession
	s.mu.Lock()
	live := s.liveLocked()
	for id, u := range s.known {
		session, lives := live[id]
		switch {
		case !lives && u.open == 0:
			delete(s.known, id)
		case lives && u.open == 0 && u.last.Before(oldest):
			over = append(over, session)
			delete(s.known, id)
			s.ending[id] = true
		}
	}
	s.mu.Unlock()
	s.end(over)
}

// begun ends what admit began. The session is known by its id from now on; ""
// says that none has begun.
func (s *sessions) begun(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if id == "" {
		return
	}
	u := s.known[id]
	if u == nil { // else its client was quicker
		u = &usage{}
		s.known[id] = u
	}
	u.real, u.last = true, time.Now()
}

// end hands sessions to Serve to be closed: that waits for their calls, which
// may go on when their client has left.
func (s *sessions) end(over []*mcp.ServerSession) {
	if len(over) == 0 {
		return
	}
	s.mu.Lock()
	s.over = append(s.over, over...)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // Serve will find these too
	}
}

// takeOver returns the sessions that are to be closed.
func (s *sessions) takeOver() []*mcp.ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.over
	s.over = nil
	return over
}

// liveLocked returns the SDK's sessions by their id. Looked at before the lock is
// taken, a session that begins meanwhile would be known and pass for one that is gone.
func (s *sessions) liveLocked() map[string]*mcp.ServerSession {
	live := map[string]*mcp.ServerSession{}
	for session := range s.server.Sessions() {
		if id := session.ID(); id != "" {
			live[id] = session
		}
	}
	return live
}

// close ends sessions, which are known to the SDK no more when it returns.
func (s *sessions) close(over []*mcp.ServerSession) {
	closeSessions(over)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range over {
		delete(s.ending, session.ID())
	}
}

// endAll has every session end: none takes a request any more.
func (s *sessions) endAll() []*mcp.ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(s.server.Sessions())
	for _, session := range all {
		s.ending[session.ID()] = true
	}
	return all
}

// closeSessions ends sessions side by side: each waits for its calls.
func closeSessions(all []*mcp.ServerSession) {
	var wg sync.WaitGroup
	for _, session := range all {
		wg.Go(func() { _ = session.Close() }) // its stream is gone with it
	}
	wg.Wait()
}

// counter counts what is open.
type counter struct {
	mu   sync.Mutex // guards the fields that follow
	open int
	zero chan struct{} // closed at the next 0; nil while nobody waits
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open += n; c.open == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

// none returns a channel that is closed when nothing is open.
func (c *counter) none() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	zero := c.zero
	if zero == nil {
		zero = make(chan struct{})
		if c.open == 0 {
			close(zero)
			return zero
		}
		c.zero = zero
	}
	return zero
}
