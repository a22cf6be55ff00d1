package supervisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// cursed is a peer over whose offers Orla panics, once for each token.
type cursed struct {
	*fakePeer
	armed chan struct{} // closed: always
}

func (c *cursed) Updated() <-chan string {
	select {
	case <-c.armed:
		panic("for the test")
	default:
		return c.fakePeer.Updated()
	}
}

// TestF2APeerThatIsAlwaysPanickedOverHoldsNoOther: the tree pauses its restarts then, and
// the other peers are served and followed meanwhile.
func TestF2APeerThatIsAlwaysPanickedOverHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &cursed{newFakePeer("bad", peer.Offers{Known: true}), make(chan struct{})}
		close(bad.armed)
		good := newFakePeer("good", peer.Offers{Known: true, Tools: listed("good__a")})
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{
				manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) {
					if tool.Name == "bad" {
						return bad, nil
					}
					return good, nil
				},
			},
			Log: slog.New(slog.DiscardHandler),
		})
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("bad", ""), capsuleTool("good", "")})
		for i := range 100 {
			name := fmt.Sprint("good__", i)
			good.offer(peer.Offers{Known: true, Tools: listed(name)})
			synctest.Wait()
			if tools := s.Catalog().Tools; len(tools) != 1 || tools[0].Name != name {
				t.Fatalf("change %d of another peer is not listed: %d tools", i, len(tools))
			}
			time.Sleep(100 * time.Millisecond) // in a bubble
		}
	})
}

// TestF2APanicOverWhatAPeerOffersServesItAnew: the panic ends the peer's service, not the
// process, and the peer is followed again afterwards.
func TestF2APanicOverWhatAPeerOffersServesItAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &cursed{newFakePeer("p", peer.Offers{Known: true, Tools: listed("p__a")}), make(chan struct{}, 1)}
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{
				manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil },
			},
			Log: slog.New(slog.DiscardHandler),
		})
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("p", "")})
		synctest.Wait()
		p.armed <- struct{}{}
		p.offer(peer.Offers{Known: true, Tools: listed("p__a")}) // wakes the follower, which panics
		synctest.Wait()
		p.offer(peer.Offers{Known: true, Tools: listed("p__b")})
		synctest.Wait()
		if tools := s.Catalog().Tools; len(tools) != 1 || tools[0].Name != "p__b" {
			t.Errorf("after the panic the catalog has %d tools, want p__b", len(tools))
		}
	})
}

// unlogged is a peer that panics when it is told a log level.
type unlogged struct{ *fakePeer }

func (unlogged) Request(context.Context, peer.Request) (json.RawMessage, error) {
	panic("for the test")
}

// TestF2APanicOverALogLevelLeavesTheOthersTold: the level goes to all peers at once.
func TestF2APanicOverALogLevelLeavesTheOthersTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logs := peer.Offers{Known: true, Logs: true}
		bad, good := unlogged{newFakePeer("bad", logs)}, newFakePeer("good", logs)
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{
				manifest.Capsule: func(tool manifest.Tool) (supervisor.Provider, error) {
					if tool.Name == "bad" {
						return bad, nil
					}
					return good, nil
				},
			},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		defer serving(t, s)()
		s.Apply([]manifest.Tool{capsuleTool("bad", ""), capsuleTool("good", "")})
		synctest.Wait()
		if _, err := s.Request(t.Context(), peer.Request{Method: "logging/setLevel", Params: json.RawMessage(`{"level":"debug"}`)}); err != nil {
			t.Errorf("the level: %v", err)
		}
		if n := good.requests.Load(); n != 1 {
			t.Errorf("the other peer was told %d times", n)
		}
		if text := log.String(); strings.Count(text, "panic in a goroutine") != 1 || !strings.Contains(text, "level=ERROR") {
			t.Errorf("the log: %s", text)
		}
	})
}
