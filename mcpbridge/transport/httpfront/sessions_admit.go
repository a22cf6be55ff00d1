package httpfront

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// fairShare says how many sessions a party keeps at the limit: one in fairShare of all sessions.
const fairShare = 10

// unused is how long a session without a token has to be idle until it makes room for others
// even if its address has no more than its share. Otherwise many addresses could keep all
// sessions.
const unused = 5 * time.Minute

// admit reports whether there is room for one more session of a party, of most in all. opened has
// to be called afterwards, also if the session does not begin.
//
// At the limit, the party with the most sessions loses those that have been idle longest, if it
// has more than its share, so that a party that begins many takes nothing from others. If there
// is none, a session without a token that is unused makes room. A party with a token and less
// than its share gets room even if no session is idle. The caller ends the sessions that admit
// returns.
func (s *sessions) admit(most int, of party, known bool) (yielded []*client.Session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fullLocked(most) {
		yielded = s.yieldLocked(most, of, known)
	}
	if ok = !s.fullLocked(most); ok {
		s.opening++
	}
	return yielded, ok
}

// admitStream does the same for a stream, which counts until leave is called. The stream ends with
// the request that it returns.
func (h *Front) admitStream(r *http.Request) (_ *http.Request, leave func(), ok bool) {
	s, of := h.sessions, partyOf(r, "")
	yielded, ok := s.admit(h.settings.Load().MaxSessions, of, subject(r) != "")
	h.endSessions(yielded)
	if !ok {
		return nil, nil, false
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
	}, true
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
	yielded, ok := h.sessions.admit(h.settings.Load().MaxSessions, of, from.subject != "")
	h.endSessions(yielded)
	if !ok {
		crowded(out, m.ID, noSession)
		return
	}
	s := client.New(rand.Text())
	u := &usage{Session: s, user: from.subject, party: of}
	began := false // also when there is a panic
	defer func() {
		if !began {
			h.sessions.opened(nil)
		}
	}()
	by := from.origin(r)
	by.Session = s.ID
	asked, refused := h.bridge.NewRequest(m, by, s, nil)
	if refused != nil {
		h.refuseRequest(out, r, m.ID, refused)
		return
	}
	asked.Begin(r.Context())
	h.headersRead(r)
	h.bridge.Exchange(asked, func(response wire.Parts, code int64, release func()) { //nolint:contextcheck // asked has its own, since in a session it outlives its POST
		defer release()
		if code == 0 {
			began, out.opened = true, true
			h.sessions.opened(u)
			out.Header().Set(wire.SessionHeader, s.ID)
			if removed(r.Context()) {
				h.endSessions(h.sessions.removeOne(u))
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

// crowded refuses a session or a stream for which there is no room.
func crowded(w http.ResponseWriter, id json.RawMessage, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(budget.RetryAfter.Seconds())))
	writeJSON(w, http.StatusServiceUnavailable, string(budget.RefusalJSON(id, text)))
}

// noSession is why none begins.
const noSession = "there are as many sessions and streams as max_sessions allows, and none that has to make room"
