package supervisor_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// SPEC N2, D7a: what peers are known to offer from an earlier life keeps a start, for which all calls wait, and an upgrade only for a
// moment, however many have much. The others are as peers that have not said it yet.
func TestN2AStartDoesNotWaitForAllThatPeersAreKnownToOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const peers = 10
		all := map[string]supervisor.Provider{}
		var names []string
		for i := range peers {
			names = append(names, fmt.Sprintf("p%d", i))
			all[names[i]] = newFakePeer(names[i], peer.Offers{Known: true, Tools: []*mcp.Tool{{Name: names[i], InputSchema: dearSchema{}}}})
		}
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) { return all[t.Name], nil }},
			Log:   slog.New(slog.DiscardHandler),
		})
		began := time.Now()
		apply(s, names...)
		if took := time.Since(began); took > 2*time.Minute { // one schema takes a minute, and is not cut
			t.Errorf("the start took %s", took)
		}
		if s.Catalog().Of(names[0]) == "" || s.Catalog().Known() {
			t.Error("what was compiled is not served, or the others are taken for peers without tools")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, name := range names {
			if s.Catalog().Of(name) == "" {
				t.Errorf("the tool of %s is not served", name)
			}
		}
		cancel()
		<-done //nolint:errcheck // it is that of the context
	})
}

// SPEC N2, D7a: a Supervisor that does not serve, as that of orla can, compiles nothing later, and so it takes its time.
func TestD7aWhatIsNotServedIsCompiledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := peers(map[string]*fakePeer{"a": dearPeer("a"), "b": dearPeer("b"), "c": dearPeer("c")})
		s.ApplyUnserved([]manifest.Tool{capsuleTool("a", ""), capsuleTool("b", ""), capsuleTool("c", "")})
		for _, name := range []string{"a", "b", "c"} {
			if s.Catalog().Of(name) == "" {
				t.Errorf("the tool of %s is not there", name)
			}
		}
	})
}

// SPEC D2, D7a: a manifest that comes back while its old process ends is listed at once, as one that has changed is.
func TestD7aAManifestThatComesBackIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newFakePeer("x", peer.Offers{Known: true, Tools: listed("x")})
		old.closing = time.Hour
		made := map[string]*fakePeer{"dear": dearPeer("dear"), "x": old}
		s := peers(made)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx) }()
		apply(s, "x")
		synctest.Wait()
		apply(s)
		synctest.Wait()
		made["x"] = newFakePeer("x", peer.Offers{Known: true, Tools: listed("x")})
		apply(s, "dear", "x") // the first one uses up what new ones have
		if s.Catalog().Of("x") == "" {
			t.Error("its tool is not listed while the old process ends")
		}
		time.Sleep(2 * time.Hour) // in a bubble
		stop()
		<-done //nolint:errcheck // it is that of the context
	})
}

// dearPeer offers one tool of its name whose schema takes a minute to compile.
func dearPeer(name string) *fakePeer {
	return newFakePeer(name, peer.Offers{Known: true, Tools: []*mcp.Tool{{Name: name, InputSchema: dearSchema{}}}})
}
