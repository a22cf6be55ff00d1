package httpfront

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/mcpbridge/client"
)

// SPEC G7: a session that its client has ended is not counted, though a call of it
// ends later, or comes at that very moment.
func TestG7AnEndedSessionIsNotCounted(t *testing.T) {
	s := newSessions()
	if _, full := s.admit(10, 0, party{who: "ann"}, true); full != nil {
		t.Fatal("there is no room")
	}
	u := &usage{Session: client.New("one"), user: "ann", party: party{who: "ann"}}
	s.opened(u)
	if s.find("one", "ann") != u || s.find("one", "bob") != nil {
		t.Fatal("it is not ann's alone")
	}
	s.enter(u)
	if over := s.removeOne(u); len(over) != 1 || len(s.removeOne(u)) != 0 {
		t.Errorf("it was ended %d times", len(over))
	}
	if s.find("one", "ann") != nil {
		t.Error("a call of it is let in")
	}
	s.leave(u)
	if n := s.count(); n != 0 {
		t.Errorf("%d sessions are counted", n)
	}
}

// begin adds a session of a caller where there may be most. It reports false if there is no
// room. A caller "at" an address has no token.
func (s *sessions) begin(t *testing.T, id string, most int, of party) (*usage, bool) {
	t.Helper()
	if _, full := s.admit(most, 0, of, !strings.HasPrefix(of.who, "at ")); full != nil {
		return nil, false
	}
	u := &usage{Session: client.New(id), user: of.who, party: of}
	if strings.HasPrefix(of.who, "at ") {
		u.user = ""
	}
	s.opened(u)
	return u, true
}

// SPEC S1: where there are as many sessions as may be, the next request for one costs the
// same however many there are, whether it is refused or another session makes room.
func TestS1ARequestAtMaxSessionsDoesNotLookAtAllSessions(t *testing.T) {
	ann, bob := party{who: "ann"}, party{who: "bob"}
	full := func(t *testing.T, n int, busy bool) *sessions {
		s := newSessions()
		for i := range n {
			u, ok := s.begin(t, fmt.Sprint("ann's ", i), n, ann)
			if !ok {
				t.Fatal("there is no room")
			}
			if busy {
				s.enter(u)
			}
		}
		return s
	}
	t.Run("refused", func(t *testing.T) {
		costtest.Check(t, 500, func(n int) func() {
			s := full(t, n, true)
			return func() {
				for range n {
					if _, full := s.admit(n, 0, ann, true); full == nil {
						t.Error("it is let in")
					}
				}
			}
		})
	})
	t.Run("an idle session makes room", func(t *testing.T) {
		costtest.Check(t, 500, func(n int) func() {
			s := full(t, n, false)
			return func() {
				for i := range n {
					if _, ok := s.begin(t, fmt.Sprint("next ", i), n, ann); !ok {
						t.Error("there is no room")
					}
				}
			}
		})
	})
	t.Run("an unused session without a token makes room", func(t *testing.T) {
		at := func(i int) party { return party{who: fmt.Sprint("at ", i)} }
		costtest.Check(t, 500, func(n int) func() {
			s := newSessions()
			for i := range n {
				u, ok := s.begin(t, fmt.Sprint(i), n, at(i))
				if !ok {
					t.Fatal("there is no room")
				}
				u.last = u.last.Add(-unused)
			}
			return func() {
				for i := range n {
					if u, ok := s.begin(t, fmt.Sprint("next ", i), n, at(n+i)); ok {
						u.last = u.last.Add(-unused)
					} else {
						t.Error("there is no room")
					}
				}
			}
		})
	})
	t.Run("a busy session makes room", func(t *testing.T) {
		costtest.Check(t, 500, func(n int) func() {
			s := full(t, n, true)
			return func() {
				for i := range n {
					u, ok := s.begin(t, fmt.Sprint("bob's ", i), n, bob)
					if !ok {
						t.Fatal("there is no room")
					}
					s.removeOne(u)
					if u, ok = s.begin(t, fmt.Sprint("ann's next ", i), n, ann); !ok {
						t.Fatal("there is no room")
					}
					s.enter(u)
				}
			}
		})
	})
}

// If many addresses without tokens have all sessions, and none has more than its share, an
// unused session makes room: the one that has been idle longest. No address gets more than
// its share this way, and no token loses a session (SPEC N2, G7).
func TestN2UnusedSessionsWithoutTokensMakeRoom(t *testing.T) {
	const most = 40
	at := func(i int) party { return party{who: fmt.Sprint("at 127.0.0.", i), program: fmt.Sprint("p", i)} }
	full := func(t *testing.T, of func(i int) party) (s *sessions, all []*usage) {
		s = newSessions()
		for i := range most {
			u, ok := s.begin(t, fmt.Sprint(i), most, of(i))
			if !ok {
				t.Fatal("there is no room")
			}
			all = append(all, u)
		}
		return s, all
	}
	test := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	test("of many addresses", func(t *testing.T) {
		s, all := full(t, at)
		if _, ok := s.begin(t, "early", most, at(most)); ok {
			t.Error("a session that was used lately made room")
		}
		time.Sleep(unused)
		s.enter(all[0])
		s.enter(all[1])
		s.leave(all[1])
		for i := range most / fairShare {
			if _, ok := s.begin(t, fmt.Sprint("next ", i), most, at(most)); !ok {
				t.Fatal("no unused session makes room")
			}
			if s.find(all[2+i].ID, "") != nil || s.find(all[3+i].ID, "") == nil {
				t.Errorf("session %d is not the only one to make room", 2+i)
			}
		}
		if _, ok := s.begin(t, "too many", most, at(most)); ok {
			t.Error("an address got more than its share of those that others do not use")
		}
		if s.find(all[0].ID, "") == nil || s.find(all[1].ID, "") == nil {
			t.Error("a session in use made room")
		}
		if u, ok := s.begin(t, "a token's", most, party{who: "ann"}); !ok || u == nil {
			t.Error("there is no room for a token")
		}
	})
	test("of one address with many programs", func(t *testing.T) {
		s, all := full(t, func(i int) party { return party{who: "at 127.0.0.1", program: fmt.Sprint("p", i)} })
		time.Sleep(unused)
		if _, ok := s.begin(t, "next", most, all[0].party); !ok || s.find(all[0].ID, "") != nil {
			t.Error("the oldest unused session does not make room")
		}
	})
	test("next to an address with more than its share", func(t *testing.T) {
		s, all := full(t, func(i int) party { return at(max(i, 20)) })
		for _, u := range all[:21] {
			s.enter(u)
		}
		time.Sleep(unused)
		if _, ok := s.begin(t, "its own", most, at(20)); ok {
			t.Error("it takes sessions of others")
		}
		if _, ok := s.begin(t, "another's", most, at(1)); !ok || s.find(all[21].ID, "") != nil {
			t.Error("no unused session makes room")
		}
	})
	test("of tokens", func(t *testing.T) {
		s, all := full(t, func(i int) party { return party{who: fmt.Sprint("token ", i)} })
		time.Sleep(unused)
		if _, ok := s.begin(t, "next", most, all[0].party); ok {
			t.Error("a token lost a session of its share")
		}
	})
}

// What is kept of each party, as it changes, is what a look at all sessions would find.
func TestG7PartiesAreCountedAsTheyChange(t *testing.T) {
	const most = 40
	s, random := newSessions(), rand.New(rand.NewPCG(1, 2))
	serial, used := 0, map[*usage]int{} // in which step it was used last
	var streams []*stream
	for range 20_000 {
		of := []party{{who: "ann"}, {who: "bob"}, {who: "at x", program: "p"}, {who: "at x", program: "q"}}[random.IntN(4)]
		all := slices.Collect(maps.Values(s.known))
		var u *usage
		if len(all) > 0 {
			u = all[random.IntN(len(all))]
		}
		switch serial++; {
		case u == nil || random.IntN(4) == 0:
			if u, ok := s.begin(t, fmt.Sprint(serial), most, of); ok {
				used[u] = serial
			}
		case random.IntN(10) == 0:
			s.removeOne(u)
		case random.IntN(4) == 0:
			if _, full := s.admit(most, 0, of, true); full == nil {
				one := &stream{party: of, end: func() {}}
				s.opening--
				s.openLocked(one)
				streams = append(streams, one)
			}
		case len(streams) > 0 && random.IntN(3) == 0:
			s.closeLocked(streams[0])
			streams = streams[1:]
		case u.open > 0 && random.IntN(2) == 0:
			s.leave(u)
			used[u] = serial
		default:
			s.enter(u)
			used[u] = serial
		}
		if len(s.known)+len(s.streams) > most || s.opening != 0 {
			t.Fatalf("there are %d sessions and %d streams", len(s.known), len(s.streams))
		}
		s.compare(t, used)
	}
}

// compare compares what is kept of parties with all sessions and streams.
func (s *sessions) compare(t *testing.T, used map[*usage]int) {
	t.Helper()
	have, each := map[string]int{}, map[party]int{}
	idle, busy, idleOf := map[string]*usage{}, map[string]*usage{}, map[party]*usage{}
	var anonymous *usage
	older := func(a, b *usage) *usage {
		if a == nil || used[b] < used[a] {
			return b
		}
		return a
	}
	for _, u := range s.known {
		have[u.party.who]++
		each[u.party]++
		if u.open > 0 {
			busy[u.party.who] = older(busy[u.party.who], u)
			continue
		}
		if u.user == "" {
			anonymous = older(anonymous, u)
		}
		idle[u.party.who], idleOf[u.party] = older(idle[u.party.who], u), older(idleOf[u.party], u)
	}
	for one := range s.streams {
		have[one.party.who]++
		each[one.party]++
	}
	if got := s.parties.anonymous.oldest(); got != anonymous {
		t.Fatalf("the oldest session without a token is %p, want %p", got, anonymous)
	}
	if len(s.parties.of) != len(have) || s.parties.most.Len() != len(have) {
		t.Fatalf("%d parties are kept, want %d", len(s.parties.of), len(have))
	}
	for who, n := range have {
		m := s.parties.of[who]
		if m.n != n || n > s.parties.largest().n || m.idle.oldest() != idle[who] || m.busy.oldest() != busy[who] {
			t.Fatalf("%s: %d are counted, want %d; the largest has %d; oldest %p and %p, want %p and %p",
				who, m.n, n, s.parties.largest().n, m.idle.oldest(), m.busy.oldest(), idle[who], busy[who])
		}
	}
	for p, n := range each {
		m := s.parties.of[p.who]
		if one := m.programs[p.program]; one.n != n || n > m.largest().n || one.idle.oldest() != idleOf[p] || len(m.programs) != m.most.Len() {
			t.Fatalf("%v: %d are counted, want %d", p, one.n, n)
		}
	}
}

// SPEC N1: a caller has as many sessions as its limit allows, whoever else has some. Its own session makes room
// if nobody has used it for some time. All addresses without a token are one caller.
func TestN1TheLimitOfSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, at := range map[string]func(i int) party{
			"a token":   func(int) party { return party{who: "ann", caller: "ann"} },
			"addresses": func(i int) party { return party{who: fmt.Sprint("at ", i), caller: anonymous} },
		} {
			s, known := newSessions(), name == "a token"
			limit := 2
			begin := func(i int) (*usage, *noRoom) {
				_, full := s.admit(10, limit, at(i), known)
				if full != nil {
					return nil, full
				}
				u := &usage{Session: client.New(fmt.Sprint(name, i)), party: at(i)}
				if known {
					u.user = "ann"
				}
				s.opened(u)
				s.notOpened(u) // is deferred, and does nothing
				return u, nil
			}
			first, _ := begin(1)
			if _, full := s.admit(10, limit, at(2), known); full != nil {
				t.Fatalf("%s: %v", name, full)
			}
			if _, full := begin(3); full == nil || full.code != fault.RateLimited || !strings.Contains(full.text, "may have 2 sessions") {
				t.Errorf("%s: one that begins does not count: %+v", name, full)
			}
			s.notOpened(&usage{party: at(2)})
			second, full := begin(3)
			if full != nil {
				t.Fatalf("%s: one that did not begin counts: %v", name, full)
			}
			s.enter(first)
			time.Sleep(unused)
			if _, full := s.admit(10, 1, party{who: "bob", caller: "bob"}, true); full != nil {
				t.Errorf("%s: another caller: %v", name, full)
			}
			s.notOpened(&usage{party: party{who: "bob", caller: "bob"}})
			third, full := begin(4)
			if full != nil || s.find(second.ID, second.user) != nil || s.find(first.ID, first.user) == nil {
				t.Errorf("%s: the session that nobody uses does not make room: %v", name, full)
			}
			limit = 0 // by a reload
			if _, full := begin(5); full != nil {
				t.Errorf("%s: without a limit: %v", name, full)
			}
			s.removeOne(third)
			if n := s.ofCallers()[at(0).caller]; n != 2 {
				t.Errorf("%s: %d are counted", name, n)
			}
			s.remove(func(*usage) bool { return true })
			if n := len(s.ofCallers()); n != 0 {
				t.Errorf("%s: %d callers are known when all have left", name, n)
			}
		}
	})
}
