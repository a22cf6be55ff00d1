package httpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// fairShare says how many sessions a party keeps at the limit: one in fairShare of all sessions.
const fairShare = 10

// unused is how long a session has to be idle until it makes room: one without a token for others, even if
// its address has no more than its share, since otherwise many addresses could keep all sessions; and one
// of a caller that has as many as its limit allows for the next one of that caller.
const unused = 5 * time.Minute

// admit reports whether there is room for one more session of a party, of most in all and of limit for
// the caller; a limit of 0 is none. opened or notOpened has to be called afterwards. The error says why there is no room.
//
// At its limit, a caller loses its own session that has been idle longest, if that is unused.
//
// At the limit, the party with the most sessions loses those that have been idle longest, if it
// has more than its share, so that a party that begins many takes nothing from others. If there
// is none, a session without a token that is unused makes room. A party with a token and less
// than its share gets room even if no session is idle. The caller ends the sessions that admit
// returns.
func (s *sessions) admit(most, limit int, of party, known bool) (yielded []*client.Session, err *noRoom) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for limit > 0 && s.callers[of.caller] >= limit {
		u := s.unusedOfLocked(of, known)
		if u == nil {
			return yielded, &noRoom{http.StatusTooManyRequests, fault.RateLimited, fmt.Sprintf("%s may have %d sessions and streams at one time; end one", of.caller, limit)}
		}
		s.forgetLocked(u)
		yielded = append(yielded, u.Session)
	}
	if s.fullLocked(most) {
		yielded = append(yielded, s.yieldLocked(most, of, known)...)
	}
	if s.fullLocked(most) {
		return yielded, noSession
	}
	s.opening++
	s.callers[of.caller]++
	return yielded, nil
}

// unusedOfLocked returns the session of a caller that has been idle longest, if it is unused; otherwise nil.
func (s *sessions) unusedOfLocked(of party, known bool) (u *usage) {
	if !known {
		u = s.parties.anonymous.oldest()
	} else if m := s.parties.of[of.who]; m != nil {
		u = m.idle.oldest()
	}
	if u == nil || time.Since(u.last) < unused {
		return nil
	}
	return u
}

// limitOf returns how many sessions and streams the caller of a request may have; 0 for no limit of its own.
func (h *Front) limitOf(r *http.Request, of party) int {
	return h.bridge.Limits(of.caller, groupsOf(r)).Sessions
}

// admitStream does the same for a stream, which counts until leave is called. The stream ends with
// the request that it returns.
func (h *Front) admitStream(r *http.Request) (_ *http.Request, leave func(), refused *noRoom) {
	s, of := h.sessions, partyOf(r, "")
	yielded, refused := s.admit(h.settings.Load().MaxSessions, h.limitOf(r, of), of, subject(r) != "")
	h.endSessions(yielded)
	if refused != nil {
		return nil, nil, refused
	}
	ctx, cancel := context.WithCancel(r.Context())
	one := &stream{party: of, end: cancel}
	s.mu.Lock()
	s.opening--
	s.openLocked(one)
	s.mu.Unlock()
	return r.WithContext(ctx), func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closeLocked(one)
	}, nil
}

// begin answers the request that begins a session, if there is room for one.
func (h *Front) begin(out *response, r *http.Request, from sender, m *wire.Message) {
	if err := h.openings.Take(r.Context(), from.owner); err != nil {
		return // the client has left
	}
	given := sync.OnceFunc(func() { h.openings.Give(from.owner) })
	defer given()
	says, _ := wire.ReadInitialize(m.Params.Raw)
	of := partyOf(r, says.Name)
	yielded, full := h.sessions.admit(h.settings.Load().MaxSessions, h.limitOf(r, of), of, from.subject != "")
	h.endSessions(yielded)
	if full != nil {
		full.refuse(out, m.ID)
		return
	}
	s := client.New(h.newID(from.subject, says))
	u := h.sessions.usage(s, from.subject, of)
	defer h.sessions.notOpened(u)
	by := originOf(r, from.subject, from.host, client.StreamableHTTP)
	by.Session = s.ID
	asked, refused := h.bridge.NewRequest(m, by, s, nil)
	if refused != nil {
		h.refuseRequest(out, r, m.ID, refused)
		return
	}
	asked.Begin(r.Context())
	h.headersRead(r, false)
	h.bridge.Exchange(asked, func(response wire.Parts, code int64, release func()) { //nolint:contextcheck // asked has its own, since in a session it outlives its POST
		defer release()
		if code == 0 {
			out.opened = true
			h.sessions.opened(u)
			h.keepNew(u)
			out.Header().Set(wire.SessionHeader, s.ID)
			if removed(r.Context()) {
				h.endSessions(h.sessions.removeOne(u))
				h.forget(s.ID) // it may have been kept after its end
			}
		}
		given()
		_ = out.answer(response, false) // the client's leaving is its own business
	})
}

func (s *sessions) fullLocked(most int) bool {
	return len(s.known)+s.opening+len(s.streams) >= most
}

// yieldLocked removes sessions to make room for one of a party: one, or more if max_sessions was
// lowered.
func (s *sessions) yieldLocked(most int, of party, known bool) (yielded []*client.Session) {
	share := max(1, most/fairShare)
	for s.fullLocked(most) {
		u := s.excessLocked(share, of)
		if u == nil {
			u = s.unusedLocked(share, of)
		}
		if u == nil {
			largest := s.parties.largest()
			if known && largest != nil && largest.n > share && s.parties.count(of.who) < share {
				yielded = append(yielded, s.interruptLocked(largest)...)
			}
			return yielded
		}
		s.forgetLocked(u)
		yielded = append(yielded, u.Session)
	}
	return yielded
}

// excessLocked returns the session of the largest party that has been idle longest, if that party
// has more than its share; otherwise nil.
func (s *sessions) excessLocked(share int, of party) *usage {
	largest := s.parties.largest()
	if largest == nil || largest.n <= share {
		return nil
	}
	own := largest.who == of.who
	program := largest.largest()
	if own && program.n <= share {
		return nil
	}
	u := program.idle.oldest()
	if u == nil && !own { // each of its sessions may be of a program with another name
		u = largest.idle.oldest()
	}
	return u
}

// unusedLocked returns the session without a token that has been idle longest, if it is unused;
// otherwise nil. A party that has its share already gets room from its own sessions only.
func (s *sessions) unusedLocked(share int, of party) *usage {
	idle := &s.parties.anonymous
	if m := s.parties.of[of.who]; m != nil && m.n >= share {
		idle = &m.idle
	}
	u := idle.oldest()
	if u == nil || u.user != "" || time.Since(u.last) < unused {
		return nil
	}
	return u
}

// interruptLocked ends the oldest stream of a party without an idle session, or removes its session
// whose last use is longest ago.
func (s *sessions) interruptLocked(of *member) []*client.Session {
	if oldest := of.streams.Front(); oldest != nil {
		one, _ := oldest.Value.(*stream)
		one.end()
		s.closeLocked(one)
		return nil
	}
	u := of.busy.oldest()
	s.forgetLocked(u)
	return []*client.Session{u.Session}
}

// noRoom is why a request is refused, or a session or a stream does not begin.
type noRoom struct {
	status int
	code   fault.Code
	text   string
}

// refuse answers the request.
func (n *noRoom) refuse(w http.ResponseWriter, id json.RawMessage) {
	w.Header().Set("Retry-After", strconv.Itoa(int(budget.RetryAfter.Seconds())))
	writeJSON(w, n.status, string(budget.RefusalJSON(id, n.code, n.text)))
}

// Why nobody gets room.
var (
	crowded   = &noRoom{http.StatusServiceUnavailable, fault.NotReady, budget.NoRoom}
	noSession = &noRoom{http.StatusServiceUnavailable, fault.NotReady, "there are as many sessions and streams as max_sessions allows, and none that has to make room"}
)
