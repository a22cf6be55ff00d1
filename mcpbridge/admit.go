package mcpbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/fault"
)

// stream is an open stream that counts as a session.
type stream struct {
	party string // see partyOf
	since time.Time
	end   context.CancelFunc
}

// fairShare is the part of all sessions that one party may have for certain when
// there are as many as may be.
const fairShare = 10

// admit reports whether there is room for one more session of a party, where there
// may be most; begun has to be called when it has begun, or has not. When there is
// none, the party with the most makes room, if it has more than its share, by the
// sessions that were idle longest: one that floods takes nothing from others. A
// party with a token and less than its share gets room also where none is idle.
func (s *sessions) admit(most int, party string, known bool) bool {
	s.mu.Lock()
	var over []*mcp.ServerSession
	if s.fullLocked(most) {
		over = s.yieldLocked(most, party, known)
	}
	ok := !s.fullLocked(most)
	if ok {
		s.opening++
	}
	s.mu.Unlock()
	s.end(over)
	return ok
}

// admitStream does the same for a stream, which is counted until the function it
// returns is called. The stream ends with the request that it returns.
func (h *HTTP) admitStream(r *http.Request) (_ *http.Request, leave func(), ok bool) {
	s, party := h.sessions, partyOf(r, "")
	if !s.admit(h.settings.Load().MaxSessions, party, subject(r) != "") {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancel(r.Context())
	one := &stream{party: party, since: time.Now(), end: cancel}
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

// begin answers a request that begins a session, if there is room for one. It reports
// false if there was none, or if the client has left.
func (h *HTTP) begin(answer *explainer, r *http.Request, most int) bool {
	line := h.senderOf(r).line
	if err := h.openings.Take(r.Context(), line); err != nil {
		return false
	}
	answer.first = sync.OnceFunc(func() { h.openings.Give(line) })
	defer answer.first()
	if !h.sessions.admit(most, partyOf(r, introduced(answer.body).name), subject(r) != "") {
		crowded(answer.response, idOf(answer.body), noSession)
		return false
	}
	began := "" // also when the handler panics
	defer func() { h.sessions.begun(began) }()
	h.stateful.ServeHTTP(answer, r)
	if !answer.refused() {
		began = answer.Header().Get(sessionHeader)
	}
	return true
}

func (s *sessions) fullLocked(most int) bool {
	return len(s.known)+s.opening+len(s.streams) >= most
}

// yieldLocked forgets sessions that are gone, and those that the largest party has
// to give up for one more of another party.
func (s *sessions) yieldLocked(most int, party string, known bool) (over []*mcp.ServerSession) {
	live := s.liveLocked()
	largest, parties := s.largestLocked(live)
	share := max(1, most/fairShare)
	if !s.fullLocked(most) || parties[largest] <= share {
		return nil
	}
	// A tenth of them at a time, so that a flood does not pay for a scan each.
	room := 1 + (parties[largest]-share)/10
	give := func(busy bool) {
		var ids []string
		for id, u := range s.known {
			if u.party == largest && (u.open > 0) == busy {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int { return s.known[a].last.Compare(s.known[b].last) })
		for _, id := range ids[:min(len(ids), room)] {
			if live[id] != nil {
				over = append(over, live[id])
				s.ending[id] = true
			}
			s.known[id].endCalls()
			delete(s.known, id)
			room--
		}
	}
	give(false)
	if s.fullLocked(most) && known && party != largest && parties[party] < share {
		room = 1
		if s.endStreamLocked(largest); s.fullLocked(most) {
			give(true)
		}
	}
	return over
}

// largestLocked forgets sessions that are gone, and returns the party with the most,
// and how many each has.
func (s *sessions) largestLocked(live map[string]*mcp.ServerSession) (largest string, parties map[string]int) {
	parties = map[string]int{}
	count := func(party string) {
		parties[party]++
		if parties[party] > parties[largest] {
			largest = party
		}
	}
	for id, u := range s.known {
		if live[id] == nil && u.open == 0 {
			delete(s.known, id)
			continue
		}
		count(u.party)
	}
	for one := range s.streams {
		count(one.party)
	}
	return largest, parties
}

// endStreamLocked ends the oldest stream of a party, if it has one.
func (s *sessions) endStreamLocked(party string) {
	var oldest *stream
	for one := range s.streams {
		if one.party == party && (oldest == nil || one.since.Before(oldest.since)) {
			oldest = one
		}
	}
	if oldest != nil {
		oldest.end()
		delete(s.streams, oldest)
	}
}

// crowdedFor is after how long a client should try again that found no room.
const crowdedFor = 30 * time.Second

// crowded refuses what there is no room for.
func crowded(w http.ResponseWriter, id json.RawMessage, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(crowdedFor.Seconds())))
	writeJSON(w, http.StatusServiceUnavailable, string(crowdedJSON(id, text)))
}

func crowdedJSON(id json.RawMessage, text string) json.RawMessage {
	return errorOf(id, &jsonrpc.Error{
		Code:    jsonrpc.CodeInternalError,
		Message: text + "; try again later",
		Data: json.RawMessage(fmt.Sprintf(`{"%s":"%s","%s":true,"%s":%d}`,
			MetaToolCode, fault.NotReady, MetaRetryable, MetaRetryAfter, crowdedFor.Milliseconds())),
	})
}

// noSession is why none begins.
const noSession = "there are as many sessions and streams as max_sessions allows, and none that has to make room"
