package mcpbridge_test

import (
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// generations is a bridge over a real supervisor that has a new peer for each
// manifest.
type generations struct {
	*world
	sup  *supervisor.Supervisor
	next func() *fakePeer

	mu    sync.Mutex // guards made
	made  []*fakePeer
	heard chan string // URIs of which a client of begin has heard
}

func newGenerations(t *testing.T) *generations {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	g := &generations{world: &world{catalog: newCatalog()}, next: func() *fakePeer { return newPeer(everything()) }, heard: make(chan string, 10)}
	g.sup = supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.made = append(g.made, g.next())
				return g.made[len(g.made)-1], nil
			},
			manifest.Simple: func(manifest.Tool) (supervisor.Provider, error) { return plainProvider{}, nil },
		},
		Log: log,
	})
	serve(t, g.sup.Serve)
	g.offered = g.sup
	g.bridge = mcpbridge.New(g.sup, mcpbridge.Options{Version: "1", Log: log})
	serve(t, g.bridge.Serve)
	return g
}

// plainProvider is one that does not live.
type plainProvider struct{ supervisor.Provider }

func (plainProvider) Tools() []*mcp.Tool { return []*mcp.Tool{tool("plain")} }

// apply makes manifests of names and versions the ones that exist.
func (g *generations) apply(t *testing.T, tools ...manifest.Tool) {
	t.Helper()
	if diff := g.sup.Apply(tools); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
}

func capsuleOf(name, version string) manifest.Tool {
	return manifest.Tool{Name: name, Kind: manifest.Capsule, Version: version}
}

// last is the peer that was made last.
func (g *generations) last() *fakePeer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.made[len(g.made)-1]
}

// begin has a client want debug messages and follow a resource.
func (g *generations) begin(t *testing.T) *mcp.ClientSession {
	t.Helper()
	c := g.front(t, httpfront.Settings{}).connect(t, "2025-11-25", following(g.heard))
	setLevel(t, c, "debug")
	subscribe(t, c, "mem://a")
	return c
}

// told waits until a peer has been told what begin wants.
func (g *generations) told(t *testing.T, s *fakePeer) {
	t.Helper()
	eventually(t, "the level is told", func() bool {
		return slices.Contains(s.asked("logging/setLevel"), `logging/setLevel {"level":"debug"}`)
	})
	g.subscribed(t, s)
}

func (g *generations) subscribed(t *testing.T, s *fakePeer) {
	t.Helper()
	eventually(t, "the subscription is told", func() bool {
		return slices.Contains(s.asked("resources/subscribe"), `resources/subscribe {"uri":"mem://a"}`)
	})
}

// A peer whose manifest has changed is told what clients want, as the one before
// it was, and tells them.
func TestASuccessorIsTold(t *testing.T) {
	g := newGenerations(t)
	g.apply(t, capsuleOf("peer", "1"))
	c := g.begin(t)
	g.told(t, g.last())
	for _, version := range []string{"2", "3"} {
		g.apply(t, capsuleOf("peer", version))
		g.told(t, g.last())
		g.last().updated <- "mem://a"
		if got := within(t, g.heard, "update"); got != "mem://a" {
			t.Errorf("heard of %s", got)
		}
	}
	unsubscribe(t, c)
	if told := g.last().asked("resources/unsubscribe"); len(told) != 1 {
		t.Errorf("the last one was told %q", told)
	}
	g.apply(t, capsuleOf("peer", "4"))
	eventually(t, "the level is told", func() bool { return len(g.last().asked("logging/setLevel")) > 0 })
	if told := g.last().asked("resources/subscribe"); len(told) != 0 {
		t.Errorf("nobody follows it, and the next one was told %q", told)
	}
}

// A manifest that changes again at once has its last peer told.
func TestASuccessorOfASuccessorIsTold(t *testing.T) {
	g := newGenerations(t)
	g.apply(t, capsuleOf("peer", "1"))
	g.begin(t)
	g.apply(t, capsuleOf("peer", "2"))
	g.apply(t, capsuleOf("peer", "3"))
	g.told(t, g.last())
}

// A peer that comes back after a time as something else is told, and so is one
// that has never been there.
func TestAPeerThatComesIsTold(t *testing.T) {
	g := newGenerations(t)
	g.apply(t, capsuleOf("peer", "1"))
	g.begin(t)
	g.apply(t, manifest.Tool{Name: "peer", Kind: manifest.Simple})
	g.apply(t, capsuleOf("peer", "1"))
	g.told(t, g.last())
	g.apply(t, capsuleOf("peer", "1"), capsuleOf("second", "1"))
	eventually(t, "the second one is told the level", func() bool { return len(g.last().asked("logging/setLevel")) > 0 })
}

// A successor that says later what it offers is told then.
func TestASuccessorThatOffersLater(t *testing.T) {
	g := newGenerations(t)
	g.apply(t, capsuleOf("peer", "1"))
	g.begin(t)
	other := everything()
	other.Resources, other.Logs = other.Resources[1:], false
	g.next = func() *fakePeer { return newPeer(other) }
	g.apply(t, capsuleOf("peer", "2"))
	g.subscribed(t, g.last()) // it may know what it does not list
	g.last().offer(everything())
	g.told(t, g.last())
}

// What another peer lists from now on is followed there.
func TestAResourceThatMoves(t *testing.T) {
	g := newGenerations(t)
	g.apply(t, capsuleOf("peer", "1"))
	g.begin(t)
	g.apply(t, capsuleOf("renamed", "1"))
	g.told(t, g.last())
}

// The peer that a resource belonged to is told that it is not followed there any more, when it moves, and
// when its last follower leaves after nobody has it any more (SPEC N2): it would be told to each new process.
func TestN2APeerForgetsWhatIsNotItsAnyMore(t *testing.T) {
	const told = `resources/unsubscribe {"uri":"mem://a"}`
	g := newGenerations(t)
	g.apply(t, capsuleOf("first", "1"))
	c := g.begin(t)
	first := g.last()
	none := peer.Offers{Tools: everything().Tools, Known: true}
	g.next = func() *fakePeer { return newPeer(none) }
	g.apply(t, capsuleOf("first", "1"), capsuleOf("second", "1"))
	second := g.last()

	second.offer(everything())
	first.offer(none)
	g.subscribed(t, second)
	eventually(t, "the first one is told", func() bool { return slices.Contains(first.asked("resources/unsubscribe"), told) })

	second.offer(none)
	eventually(t, "nobody has it", func() bool { p, _ := g.sup.Catalog().Holder("mem://a"); return p == nil })
	unsubscribe(t, c)
	if got := second.asked("resources/unsubscribe"); !slices.Equal(got, []string{told}) {
		t.Errorf("the second one was told %q", got)
	}
	if got := first.asked("resources/unsubscribe"); len(got) > 0 {
		t.Errorf("the first one was told again: %q", got)
	}
	if n := g.bridge.FollowedResources(); n != 0 {
		t.Errorf("%d resources are kept that nobody follows", n)
	}
}
