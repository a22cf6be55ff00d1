package supervisor_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// SPEC S1: many peers that change at the same time have one new catalog, and not each its own.
func TestS1ChangesAtTheSameTimeMakeOneCatalog(t *testing.T) {
	var made atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := supervisor.New(supervisor.Options{
		Log: slog.New(slog.DiscardHandler),
		Published: func(*supervisor.Catalog) {
			if made.Add(1) == 2 { // the first one is that of New
				close(begun)
				<-goOn
			}
		},
	})
	const peers = 50
	var all sync.WaitGroup
	all.Go(s.RefreshFirst)
	<-begun
	before := s.Asked()
	for range peers {
		all.Go(s.RefreshFirst)
	}
	testkit.Eventually(t, "all peers have asked", func() bool { return s.Asked() == before+peers })
	close(goOn)
	all.Wait()
	if got := made.Load(); got != 3 {
		t.Errorf("%d catalogs were made, not the first one, the one that was under way, and one for all %d peers", got, peers)
	}
}

// SPEC N2: who calls first after a change does not make what rules have to know of all tools: a capsule with many would hold
// the calls of all callers.
func TestN2NoCallWaitsForTheNamesOfOthers(t *testing.T) {
	const tools, most = 5000, 1000
	var names []string
	for i := range tools {
		names = append(names, fmt.Sprintf("TOOL%d", i))
	}
	peers := map[string]supervisor.Provider{
		"many": newFakePeer("many", peer.Offers{Known: true, Tools: listed(names...)}),
		"b":    newFakePeer("b", peer.Offers{Known: true, Tools: listed("own")}),
	}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return peers[t.Name], nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	apply(s, "many", "b")
	first := func(what string, ask func(*supervisor.Catalog) bool) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		known := ask(s.Catalog())
		runtime.ReadMemStats(&after)
		if made := after.Mallocs - before.Mallocs; !known || made > most {
			t.Errorf("the first %s makes %d things of %d tools of another", what, made, tools)
		}
	}
	first("call", func(c *supervisor.Catalog) bool { return c.Target("own") != nil })
	s.Catalog().Named("own") // as where there are rules
	s.Refresh()
	first("read", func(c *supervisor.Catalog) bool {
		p, _ := c.Peer("b")
		return c.TargetOfPeer(p) != nil
	})
	first("look at all names", func(c *supervisor.Catalog) bool { return c.Named("own") })
}

// servingPeers serves in a bubble, until its end, those of the peers that are named. It calls published with each catalog.
func servingPeers(t *testing.T, peers map[string]supervisor.Provider, published func(), names ...string) *supervisor.Supervisor {
	t.Helper()
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return peers[t.Name], nil },
		},
		Log:       slog.New(slog.DiscardHandler),
		Published: func(*supervisor.Catalog) { published() },
	})
	t.Cleanup(serving(t, s))
	apply(s, names...)
	synctest.Wait()
	return s
}

// SPEC N2: where it takes long to publish what a peer offers, the next look at it is long after.
func TestN2APeerThatCostsMuchIsLookedAtRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = time.Second
		var slow atomic.Bool
		var made atomic.Int32
		p := newFakePeer("a", peer.Offers{Known: true})
		servingPeers(t, map[string]supervisor.Provider{"a": p}, func() {
			if slow.Load() {
				time.Sleep(long)
			}
			made.Add(1)
		}, "a")
		slow.Store(true)
		before := made.Load()
		p.offer(peer.Offers{Known: true, Tools: listed("one")})
		time.Sleep(long)
		synctest.Wait()
		p.offer(peer.Offers{Known: true, Tools: listed("two")})
		time.Sleep(5 * long)
		if got := made.Load() - before; got != 1 {
			t.Errorf("%d catalogs in 6 s", got)
		}
		time.Sleep(6 * long)
		if got := made.Load() - before; got != 2 {
			t.Errorf("%d catalogs in 12 s", got)
		}
	})
}

// slowPeer is a peer that takes a second to be looked at.
type slowPeer struct {
	*fakePeer
	looks atomic.Int32
}

func (p *slowPeer) Offers() *peer.Offers {
	p.looks.Add(1)
	time.Sleep(time.Second)
	return p.fakePeer.Offers()
}

// SPEC N2: so it is where it takes long to look at what a peer offers, also if that is published later, since it is too early.
func TestN2APeerThatCostsMuchIsLookedAtRarelyAlsoBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		a, b := &slowPeer{fakePeer: newFakePeer("a", peer.Offers{Known: true})}, newFakePeer("b", peer.Offers{Known: true})
		s := servingPeers(t, map[string]supervisor.Provider{"a": a, "b": b}, func() {
			if slow.Load() {
				time.Sleep(time.Second / 2)
			}
		}, "a", "b")
		time.Sleep(time.Minute) // until a is looked at again
		slow.Store(true)
		b.offer(peer.Offers{Known: true, Tools: listed("two")})
		time.Sleep(time.Second)
		a.offer(peer.Offers{Known: true, Tools: listed("one")})
		time.Sleep(5 * time.Second)
		if s.Catalog().Of("one") == "" {
			t.Error("what it offers is not served after the rest of the other's")
		}
		before := a.looks.Load()
		a.offer(peer.Offers{Known: true, Tools: listed("three")})
		time.Sleep(9 * time.Second)
		if n := a.looks.Load() - before; n > 0 {
			t.Errorf("it was looked at %d times in 9 s", n)
		}
		time.Sleep(9 * time.Second)
		if s.Catalog().Of("three") == "" {
			t.Error("the last change is not served")
		}
	})
}

// SPEC N2, S2: where it takes long to make a catalog of all, the lock that reloads and the control socket need is free most of the
// time, whichever peers change, and what each of them offers is published in the end.
func TestN2ManyPeersThatChangeLeaveTheLockFree(t *testing.T) {
	const long, seconds = time.Second, 100
	inPeers := func(t *testing.T, known bool, test func(s *supervisor.Supervisor, a, b *fakePeer, made func() int)) {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Bool
			var made atomic.Int32
			a, b := newFakePeer("a", peer.Offers{Known: true}), newFakePeer("b", peer.Offers{Known: known})
			s := servingPeers(t, map[string]supervisor.Provider{"a": a, "b": b}, func() {
				if slow.Load() {
					made.Add(1)
					time.Sleep(long)
				}
			}, "a", "b")
			slow.Store(true)
			test(s, a, b, func() int { return int(made.Load()) })
		})
	}
	t.Run("many", func(t *testing.T) {
		inPeers(t, true, func(s *supervisor.Supervisor, _, _ *fakePeer, made func() int) {
			for began := time.Now(); time.Since(began) < seconds*long; time.Sleep(long / 50) {
				s.RefreshInTurn() // for any peer
			}
			if n := made(); n < seconds/12 || n > seconds/9 {
				t.Errorf("%d catalogs that take %s each were made in %d s", n, long, seconds)
			}
		})
	})
	t.Run("another one", func(t *testing.T) {
		inPeers(t, true, func(s *supervisor.Supervisor, a, b *fakePeer, made func() int) {
			a.offer(peer.Offers{Known: true, Tools: listed("one")})
			time.Sleep(2 * long)
			b.offer(peer.Offers{Known: true, Tools: listed("two")})
			time.Sleep(7 * long)
			if n := made(); n != 1 || s.Catalog().Of("one") == "" || s.Catalog().Of("two") != "" {
				t.Errorf("%d catalogs in 9 s", n)
			}
			time.Sleep(4 * long)
			if n := made(); n != 2 || s.Catalog().Of("two") == "" {
				t.Errorf("%d catalogs in 13 s", n)
			}
			time.Sleep(30 * long)
			if n := made(); n != 2 {
				t.Errorf("%d catalogs in the end", n)
			}
		})
	})
	t.Run("first lists", func(t *testing.T) {
		inPeers(t, false, func(s *supervisor.Supervisor, a, b *fakePeer, made func() int) {
			a.offer(peer.Offers{Known: true, Tools: listed("one")})
			time.Sleep(2 * long)
			b.offer(peer.Offers{Known: true, Tools: listed("two")})
			time.Sleep(2 * long)
			if n := made(); n != 2 || s.Catalog().Of("two") == "" || !s.Catalog().Known() {
				t.Errorf("%d catalogs in 4 s", n)
			}
			b.offer(peer.Offers{Known: true, Tools: listed("three")})
			time.Sleep(2 * long)
			if n := made(); n != 2 {
				t.Errorf("%d catalogs in 6 s", n)
			}
		})
	})
}

// SPEC D7a, N2: what a peer has said is not waited for by all lists for as long as it takes to prepare it.
func TestN2NobodyWaitsLongForWhatIsDearToPrepare(t *testing.T) {
	for name, before := range map[string]peer.Offers{"unknown": {}, "silent": {Known: true, Silent: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dear := newFakePeer("dear", before)
				other := newFakePeer("other", peer.Offers{Known: true, Tools: listed("one")})
				s := servingPeers(t, map[string]supervisor.Provider{"other": other, "dear": dear}, func() {}, "other", "dear")
				dear.offer(peer.Offers{Known: true, Tools: []*mcp.Tool{{Name: "two", InputSchema: dearSchema{}}}})
				began := time.Now()
				if s.Settle(t.Context()); time.Since(began) > 10*time.Second || s.Catalog().Of("one") == "" || s.Catalog().Of("two") != "" || s.Catalog().Told() {
					t.Errorf("all waited for %s", time.Since(began))
				}
				time.Sleep(time.Minute)
				if synctest.Wait(); s.Catalog().Of("two") == "" || !s.Catalog().Told() {
					t.Error("its tool is not there when it is prepared")
				}
				dear.offer(peer.Offers{}) // as one that is expected to say it now
				time.Sleep(time.Minute)   // it rests
				if s.Catalog().Known() {
					t.Error("its next lists are not waited for")
				}
			})
		})
	}
}

// SPEC N2: what peers offer is prepared in turn, and leaves processors to calls.
func TestN2PeersArePreparedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		made := map[string]supervisor.Provider{}
		var names []string
		for i := range 2*turns.Workers() + 1 {
			names = append(names, fmt.Sprintf("p%d", i))
			made[names[i]] = newFakePeer(names[i], peer.Offers{})
		}
		s := servingPeers(t, made, func() {}, names...)
		for name, p := range made {
			var tools []*mcp.Tool
			for i := range 3 {
				tools = append(tools, &mcp.Tool{Name: fmt.Sprint(name, "-", i), InputSchema: dearSchema{&now, &most}})
			}
			p.(*fakePeer).offer(peer.Offers{Known: true, Tools: tools})
		}
		time.Sleep(3*time.Minute + time.Second)
		for _, name := range names {
			if s.Catalog().Of(name+"-2") != "" {
				t.Errorf("%s was not interrupted by others", name)
			}
		}
		time.Sleep(10 * time.Minute)
		for _, name := range names {
			if s.Catalog().Of(name+"-2") == "" {
				t.Errorf("%s is not served", name)
			}
		}
		if got := int(most.Load()); got != turns.Workers() {
			t.Errorf("%d were prepared at once, not %d", got, turns.Workers())
		}
	})
}

// SPEC N2, D7a: nobody waits for peers that wait for their turns. What a peer waited for its turn does not count for its rest.
func TestN2PeersThatWaitForTheirTurnsCostOthersLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[string]supervisor.Provider{}
		var names []string
		for i := range 4 * turns.Workers() {
			names = append(names, fmt.Sprintf("p%d", i))
			all[names[i]] = newFakePeer(names[i], peer.Offers{})
		}
		s := servingPeers(t, all, func() {}, names...)
		for _, name := range names[1:] {
			all[name].(*fakePeer).offer(peer.Offers{Known: true, Tools: []*mcp.Tool{{Name: name, InputSchema: dearSchema{}}}})
		}
		time.Sleep(time.Second)
		last := all[names[0]].(*fakePeer) // its turn comes after those of all others
		last.offer(peer.Offers{Known: true, Tools: listed("first")})
		time.Sleep(10 * time.Second)
		if !s.Catalog().Known() {
			t.Error("all wait for those that are late")
		}
		for range 5 * 60 { // no longer than until then: a rest would be over
			if synctest.Wait(); s.Catalog().Of("first") != "" {
				break
			}
			time.Sleep(time.Second)
		}
		if s.Catalog().Of("first") == "" {
			t.Error("its turn has not come")
		}
		last.offer(peer.Offers{Known: true, Tools: listed("second")})
		if synctest.Wait(); s.Catalog().Of("second") == "" {
			t.Error("it rests because of what others took")
		}
		time.Sleep(5 * time.Minute) // until all are prepared
	})
}

// SPEC N2, S1: for peers that are late together one catalog is made, for which nobody waits for any of them.
func TestN2PeersThatAreLateTogetherMakeOneCatalog(t *testing.T) {
	const peers = 50
	var made, hold atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
			return newFakePeer(t.Name, peer.Offers{}), nil
		}},
		Log: slog.New(slog.DiscardHandler),
		Published: func(*supervisor.Catalog) {
			if made.Add(1); hold.CompareAndSwap(1, 0) {
				close(begun)
				<-goOn
			}
		},
	})
	var names []string
	for i := range peers {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	apply(s, names...)
	hold.Store(1)
	before, asked := made.Load(), s.Asked()
	var all sync.WaitGroup
	all.Go(s.LateOf(names[0]))
	<-begun
	for _, name := range names[1:] {
		all.Go(s.LateOf(name))
	}
	testkit.Eventually(t, "all are late", func() bool { return s.Asked() == asked+peers })
	close(goOn)
	all.Wait()
	if got := made.Load() - before; got != 2 || !s.Catalog().Known() {
		t.Errorf("%d catalogs were made, not that of the first and one for all others; known: %v", got, s.Catalog().Known())
	}
}

// dearSchema takes a minute to read.
type dearSchema struct{ now, most *atomic.Int32 } // how many are read, and were at most; nil to not count them

func (d dearSchema) MarshalJSON() ([]byte, error) {
	if d.now != nil {
		d.most.Store(max(d.most.Load(), d.now.Add(1)))
		defer d.now.Add(-1)
	}
	time.Sleep(time.Minute)
	return []byte(`{"type":"object"}`), nil
}

// SPEC D7a, N2: the first lists of a peer that is new, for which all others wait, are published at once, also when catalogs take long.
func TestD7aTheFirstListsOfANewPeerDoNotWait(t *testing.T) {
	const long = time.Second
	for name, before := range map[string]peer.Offers{"unknown": {}, "silent": {Known: true, Silent: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Bool
				a, b := newFakePeer("a", peer.Offers{Known: true}), newFakePeer("b", before)
				s := servingPeers(t, map[string]supervisor.Provider{"a": a, "b": b}, func() {
					if slow.Load() {
						time.Sleep(long)
					}
				}, "a")
				slow.Store(true)
				a.offer(peer.Offers{Known: true, Tools: listed("one")})
				time.Sleep(2 * long)
				slow.Store(false)
				apply(s, "a", "b")
				synctest.Wait()
				b.offer(before) // as a look that comes after the catalog of the manifests
				synctest.Wait()
				b.offer(peer.Offers{Known: true, Tools: listed("two")})
				synctest.Wait()
				if s.Catalog().Of("two") == "" || !s.Catalog().Known() {
					t.Error("they wait for the catalog of another")
				}
			})
		})
	}
}
