package httpfront

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// stream is an open stream that counts as a session.
type stream struct {
	party party
	since time.Time
	end   context.CancelFunc
}

// fairShare is the part of all sessions that one party may have for certain when
// there are as many as may be.
const fairShare = 10

// admit reports whether there is room for one more session of a party, where there
// may be most; opened has to be called when it has begun, or has not. When there is
// none, the party with the most makes room, if it has more than its share, by the
// sessions that were idle longest: one that floods takes nothing from others. A
// party with a token and less than its share gets room also where none is idle. The
// caller ends those that make room.
func (s *sessions) admit(most int, of party, known bool) (over []*client.Session, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fullLocked(most) {
		over = s.yieldLocked(most, of, known)
	}
	if ok = !s.fullLocked(most); ok {
		s.opening++
	}
	return over, ok
}

// admitStream does the same for a stream, which is counted until the function it
// returns is called. The stream ends with the request that it returns.
func (h *Front) admitStream(r *http.Request) (_ *http.Request, leave func(), ok bool) {
	s, of := h.sessions, partyOf(r, "")
	over, ok := s.admit(h.settings.Load().MaxSessions, of, subject(r) != "")
	h.endSessions(over)
	if !ok {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(r.Context())
	one := &stream{party: of, since: time.Now(), end: cancel}
	s.mu.Lock()
	s.opening--
	s.streams[one] = true
	s.mu.Unlock()
	return r.WithContext(ctx), func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, one)
	}, true
}

// begin answers the request that begins a session, if there is room for one.
func (h *Front) begin(out *response, r *http.Request, from sender, m *wire.Message) {
	if err := h.openings.Take(r.Context(), from.line); err != nil {
		return // the client has left
	}
	given := sync.OnceFunc(func() { h.openings.Give(from.line) })
	defer given()
	says, _ := wire.ReadInitialize(m.Params.Raw)
	of := partyOf(r, says.Name)
	over, ok := h.sessions.admit(h.settings.Load().MaxSessions, of, from.subject != "")
	h.endSessions(over)
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
	h.bridge.Exchange(asked, func(response wire.Parts, code int64, release func()) { //nolint:contextcheck // asked has its own, since in a session it outlives its POST
		defer release()
		if code == 0 {
			began = true
			h.sessions.opened(u)
			out.Header().Set(wire.SessionHeader, s.ID)
			if removed(r.Context()) {
				h.endSessions(h.sessions.removeOne(u))
			}
		}
		given()
		_ = out.answer(response) // the client's leaving is its own business
	})
}

func (s *sessions) fullLocked(most int) bool {
	return len(s.known)+s.opening+len(s.streams) >= most
}

// yieldLocked forgets sessions that the largest party has to give up for one more of
// another party.
func (s *sessions) yieldLocked(most int, of party, known bool) (over []*client.Session) {
	largest, n, have := s.largestLocked()
	share := max(1, most/fairShare)
	if have[largest.who] <= share || largest.who == of.who && n <= share {
		return nil
	}
	// A tenth of them at a time, so that a flood does not pay for a scan each.
	room := 1 + (have[largest.who]-share)/10
	give := func(busy bool, from func(party) bool) {
		var all []*usage
		for _, u := range s.known {
			if from(u.party) && (u.open > 0) == busy {
				all = append(all, u)
			}
		}
		slices.SortFunc(all, func(a, b *usage) int { return a.last.Compare(b.last) })
		for _, u := range all[:min(len(all), room)] {
			delete(s.known, u.ID)
			over = append(over, u.Session)
			room--
		}
	}
	same := func(p party) bool { return p.who == largest.who }
	give(false, func(p party) bool { return p == largest })
	if s.fullLocked(most) && largest.who != of.who {
		give(false, same) // its programs may have many names, and one session each
	}
	if s.fullLocked(most) && known && largest.who != of.who && have[of.who] < share {
		room = 1
		if s.endStreamLocked(same); s.fullLocked(most) {
			give(true, same)
		}
	}
	return over
}

// largestLocked returns the party with the most sessions, and of an address its program
// with the most, and how many that one has; and how many each caller and address has.
func (s *sessions) largestLocked() (largest party, n int, have map[string]int) {
	have = map[string]int{}
	each := map[party]int{}
	count := func(p party) {
		have[p.who]++
		each[p]++
	}
	for _, u := range s.known {
		count(u.party)
	}
	for one := range s.streams {
		count(one.party)
	}
	for p, n := range each {
		if have[p.who] > have[largest.who] || p.who == largest.who && n > each[largest] {
			largest = p
		}
	}
	return largest, each[largest], have
}

// endStreamLocked ends the oldest stream of a party, if it has one.
func (s *sessions) endStreamLocked(of func(party) bool) {
	var oldest *stream
	for one := range s.streams {
		if of(one.party) && (oldest == nil || one.since.Before(oldest.since)) {
			oldest = one
		}
	}
	if oldest != nil {
		oldest.end()
		delete(s.streams, oldest)
	}
}

// crowded refuses what there is no room for.
func crowded(w http.ResponseWriter, id json.RawMessage, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(budget.RetryAfter.Seconds())))
	writeJSON(w, http.StatusServiceUnavailable, string(budget.RefusalJSON(id, text)))
}

// noSession is why none begins.
const noSession = "there are as many sessions and streams as max_sessions allows, and none that has to make room"
