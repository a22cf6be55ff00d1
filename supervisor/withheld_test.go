package supervisor_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

var errHeld = fault.New(fault.PermissionDenied, "it is held")

// withheldTool is what a peer lists and must not be served.
func withheldTool(name string) peer.Withheld {
	return peer.Withheld{Name: name, Tool: listed(name)[0], Why: errHeld}
}

// SPEC N4: what must not be served is not listed, and whoever calls it is told why. A rule for it names something.
func TestN4WhatIsWithheldIsNotServed(t *testing.T) {
	p := newFakePeer("p", peer.Offers{
		Known: true, Tools: listed("p__a"), Completes: true, Prompts: []*mcp.Prompt{{Name: "p__q"}},
		Withheld: []peer.Withheld{withheldTool("p__b"), {Name: "p__r", Why: errHeld}, withheldTool("q")},
	})
	q := newFakePeer("q", peer.Offers{Known: true, Tools: listed("q")})
	s := peers(map[string]*fakePeer{"p": p, "q": q})
	apply(s, "p", "q")
	c := s.Catalog()
	if len(c.Tools) != 2 || c.Tools[0].Name != "p__a" || c.Tools[1].Name != "q" || len(c.Prompts) != 1 {
		t.Errorf("listed are %d tools, %d prompts", len(c.Tools), len(c.Prompts))
	}
	if _, err := s.Call(t.Context(), peer.Call{Tool: "p__b"}); fault.From(err) == nil || fault.From(err).Reason != "it is held" {
		t.Errorf("a call of what is withheld: %v", err)
	}
	if got := raw(t, s, "q"); got != `"q q"` {
		t.Errorf("what another serves under a withheld name gives %s", got)
	}
	for name, want := range map[string]bool{"p__b": true, "p__a": false, "q": false, "none": false} {
		if got := c.Withheld(name); (got != nil) != want {
			t.Errorf("%s: withheld %v, want %v", name, !want, want)
		}
	}
	for _, name := range []string{"p__b", "b"} {
		if want := name == "p__b"; c.Named(rules.Folded(name)) != want {
			t.Errorf("a rule for %s names something: %v", name, !want)
		}
	}
	if slices.ContainsFunc(s.Manifests(), func(one supervisor.Served) bool {
		return slices.ContainsFunc(one.Listed, func(t *mcp.Tool) bool { return t.Name == "p__b" })
	}) {
		t.Error("it is among what clients can call")
	}
	get := func(name string) error {
		_, err := s.Request(t.Context(), peer.Request{Method: "prompts/get", Params: json.RawMessage(`{"name":"` + name + `"}`)})
		return err
	}
	if err := get("p__r"); fault.CodeOf(err) != fault.PermissionDenied {
		t.Errorf("a withheld prompt: %v", err)
	}
	if n := p.requests.Load(); n != 0 {
		t.Errorf("the peer was asked %d times", n)
	}
	if err := get("p__q"); err != nil {
		t.Error(err)
	}
	raw, err := s.Request(t.Context(), peer.Request{Method: "completion/complete", Params: json.RawMessage(`{"ref":{"type":"ref/prompt","name":"p__r"}}`)})
	if err != nil || string(raw) != `{"completion":{"values":[]}}` {
		t.Errorf("a completion for a withheld prompt: %s, %v", raw, err)
	}
}

// SPEC N4, SPEC-TOOLS 8.6: who may not call a tool is not told that it is withheld.
func TestN4TheRulesComeFirst(t *testing.T) {
	errDenied := fault.New(fault.PermissionDenied, "ann may not")
	p := newFakePeer("p", peer.Offers{Known: true, Withheld: []peer.Withheld{withheldTool("p"), {Name: "r", Why: errHeld}}})
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		Admit: func(_ context.Context, call peer.Call, target *rules.Target) (supervisor.Admitted, error) {
			if call.Caller == "ann" && slices.Contains(target.Names(), "p") {
				return supervisor.Admitted{}, errDenied
			}
			return supervisor.Admitted{}, nil
		},
		AdmitRequest: func(_ context.Context, req peer.Request, _ func() *rules.Target) error {
			if req.Caller == "ann" {
				return errDenied
			}
			return nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	apply(s, "p")
	for caller, want := range map[string]string{"ann": "ann may not", "bob": "it is held"} {
		_, err := s.Call(t.Context(), peer.Call{Tool: "p", Caller: caller})
		if f := fault.From(err); f == nil || f.Reason != want {
			t.Errorf("%s: %v", caller, err)
		}
		_, err = s.Request(t.Context(), peer.Request{Method: "prompts/get", Caller: caller, Params: json.RawMessage(`{"name":"r"}`)})
		if f := fault.From(err); f == nil || f.Reason != want {
			t.Errorf("%s gets a prompt: %v", caller, err)
		}
	}
}

// SPEC N4: a call that waits for a provider whose manifest changes is not made if the new one must not be served.
func TestN4ASuccessorThatIsWithheld(t *testing.T) {
	old := newFakePeer("p", peer.Offers{Known: true, Tools: listed("p")})
	old.gone = true
	next := newFakePeer("p", peer.Offers{Known: true, Withheld: []peer.Withheld{withheldTool("p")}})
	made := []*fakePeer{old, next}
	waiting := &waitingPeer{fakePeer: old, entered: make(chan struct{}), leave: make(chan struct{})}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) {
			if made[0] == old {
				made = made[1:]
				return waiting, nil
			}
			return next, nil
		}},
		Log: slog.New(slog.DiscardHandler),
	})
	apply(s, "p")
	got := make(chan error)
	go func() {
		_, err := s.Call(t.Context(), peer.Call{Tool: "p"})
		got <- err
	}()
	<-waiting.entered
	s.Apply([]manifest.Tool{capsuleTool("p", "another")})
	close(waiting.leave)
	if f := fault.From(<-got); f == nil || f.Reason != "it is held" {
		t.Errorf("%v", f)
	}
}

// SPEC N4, SPEC-TOOLS 8.7: nobody is asked to approve a call of what is withheld, and an approval of a call whose tool
// is withheld by then makes no call.
func TestN4ApprovalsOfWhatIsWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFakePeer("p", peer.Offers{Known: true, Tools: listed("p")})
		asked, sent := 0, true
		s := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
			Admit: func(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error) {
				return supervisor.Admitted{Done: func(was bool) { sent = was }, Approve: func(_ context.Context, _ *peer.Call, again supervisor.Again) error {
					asked++
					p.offer(peer.Offers{Known: true, Withheld: []peer.Withheld{withheldTool("p")}})
					synctest.Wait() // the catalog follows
					return again.Place()
				}}, nil
			},
			Log: slog.New(slog.DiscardHandler),
		})
		go func() { _ = s.Serve(t.Context()) }()
		apply(s, "p")
		synctest.Wait()
		for range 2 { // the second call is of what is withheld from the beginning
			_, err := s.Call(t.Context(), peer.Call{Tool: "p"})
			if f := fault.From(err); f == nil || f.Reason != "it is held" || sent {
				t.Errorf("%v, sent %v", err, sent)
			}
		}
		if asked != 1 {
			t.Errorf("somebody was asked %d times, want once", asked)
		}
	})
}
