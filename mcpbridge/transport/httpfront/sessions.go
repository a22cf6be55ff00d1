package httpfront

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
	"github.com/orla-project/orla/mcpbridge/transport/held"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
)

// sessions are those of Streamable HTTP, and the streams that count as sessions.
type sessions struct {
	kept      *sessionlog.Log  // nil if sessions end with the process; set before the first request
	elsewhere passed.Elsewhere // other replicas; nil for none; set before the first request
	resuming  sync.Mutex       // held while a session of an earlier process is resumed
	closing   atomic.Bool      // the next process goes on with the sessions
	held      *held.Room       // of answers for which clients may come back

	mu      sync.Mutex        // guards the fields that follow, and those of a usage
	known   map[string]*usage // by their ids
	opening int               // sessions that were admitted and are not known yet
	streams map[*stream]bool
	parties parties        // whose the known ones are
	callers map[string]int // how many sessions and streams each caller has, by party.caller: known ones, and those that begin
}

// usage is a session, whose it is, and how it is used.
type usage struct {
	*client.Session
	user  string // who began it
	party party  // whom it counts for; see admit

	open int // requests and streams that are open
	streams
	last  time.Time // when the last request or stream ended
	noted time.Time // when its use was noted last; see Front.leave

	// Its place among the sessions of its party, and among all without a token; see parties.
	member                           *member // nil if it is not known
	program                          *program
	inMember, inProgram, inAnonymous rank
}

func newSessions() *sessions {
	return &sessions{held: held.NewRoom(), known: map[string]*usage{}, streams: map[*stream]bool{}, callers: map[string]int{}}
}

// usage returns the usage of a new session.
func (s *sessions) usage(of *client.Session, user string, by party) *usage {
	return &usage{Session: of, user: user, party: by, streams: streams{held: s.held.Session()}}
}

// find returns a session that a user began; nil if there is none.
func (s *sessions) find(id, user string) *usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.known[id]; u != nil && u.user == user {
		return u
	}
	return nil
}

// enter counts a request of a session as open until leave is called.
func (s *sessions) enter(u *usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.open++
	s.parties.used(u)
}

// leave reports whether the use of the session should be noted.
func (s *sessions) leave(u *usage) (note bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.open--
	return s.restsLocked(u)
}

// restsLocked puts a session of which a request or a stream has ended behind the others.
func (s *sessions) restsLocked(u *usage) (note bool) {
	u.last = time.Now()
	s.parties.used(u)
	if note = u.last.Sub(u.noted) > sessionlog.NoteEvery; note {
		u.noted = u.last
	}
	return note
}

// enterStream is like enter, for the session's event stream. It reports false if the session has
// one already, unless the new one is to take its place.
func (s *sessions) enterStream(u *usage, one *newsStream, instead bool) (before *newsStream, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.news != nil && !instead {
		return nil, false
	}
	before, u.news = u.news, one
	u.open++
	s.parties.used(u)
	return before, true
}

func (s *sessions) leaveStream(u *usage, one *newsStream) (note bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.news == one {
		u.news = nil
	}
	u.open--
	return s.restsLocked(u)
}

// count returns how many sessions and streams there are.
func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) + len(s.streams)
}

// opened follows each admit of a session: it is known from now on.
func (s *sessions) opened(u *usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	u.last = time.Now()
	u.noted = u.last
	s.known[u.ID] = u
	s.parties.addSession(u)
}

// notOpened is deferred after an admit, for a session that does not begin, also since something panics.
func (s *sessions) notOpened(u *usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.last.IsZero() { // it was not opened
		s.opening--
		s.uncountLocked(u.party)
	}
}

// uncountLocked counts one session or stream less of a caller.
func (s *sessions) uncountLocked(of party) {
	if s.callers[of.caller]--; s.callers[of.caller] == 0 {
		delete(s.callers, of.caller)
	}
}

// ofCallers returns how many sessions and streams each caller has, by its name.
func (s *sessions) ofCallers() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.callers)
}

// forgetLocked removes a known session.
func (s *sessions) forgetLocked(u *usage) {
	delete(s.known, u.ID)
	s.parties.removeSession(u)
	s.uncountLocked(u.party)
}

// openLocked counts a stream.
func (s *sessions) openLocked(one *stream) {
	s.streams[one] = true
	s.parties.addStream(one)
}

// closeLocked stops counting a stream.
func (s *sessions) closeLocked(one *stream) {
	if s.streams[one] {
		delete(s.streams, one)
		s.parties.removeStream(one)
		s.uncountLocked(one.party)
	}
}

// remove removes the sessions for which ended reports true, and returns them. The caller ends
// them.
func (s *sessions) remove(ended func(u *usage) bool) (removed []*client.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.known {
		if ended(u) {
			s.forgetLocked(u)
			removed = append(removed, u.Session)
		}
	}
	return removed
}

// removeOne removes one session, if it is still known.
func (s *sessions) removeOne(u *usage) []*client.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[u.ID] != u {
		return nil
	}
	s.forgetLocked(u)
	return []*client.Session{u.Session}
}

// idle removes the sessions that were idle for longer than timeout, and returns them.
func (s *sessions) idle(timeout time.Duration) []*client.Session {
	oldest := time.Now().Add(-timeout)
	return s.remove(func(u *usage) bool { return u.open == 0 && u.last.Before(oldest) })
}

// endStreams ends the streams that count as sessions.
func (s *sessions) endStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.streams {
		one.end()
	}
}
