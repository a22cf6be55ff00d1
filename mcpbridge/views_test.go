package mcpbridge_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/costtest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// ruled are rules that do not change.
type ruled struct{ set *rules.Set }

func (r ruled) Rules() *rules.Set                                       { return r.set }
func (ruled) Changed() <-chan struct{}                                  { return nil }
func (ruled) May(rules.Caller, func() *rules.Target, *peer.Noted) error { return nil }
func (ruled) Limits(string, []string) rules.Limits                      { return rules.Limits{} }

// SPEC-TOOLS 8.6, S1: the lists of a caller who may use nothing of a capsule cost what its tools and its resources
// cost together, and not each with each.
func TestS1AViewCostsToolsAndResources(t *testing.T) {
	at := manifest.Reference{Name: "none", At: "a.yaml:1:1"}
	set := rules.New(manifest.Rules{Roles: []manifest.Role{{Reference: at}}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{at}}}, nil)
	costtest.Check(t, 1500, func(n int) func() {
		offers := peer.Offers{Reads: true, Known: true}
		for i := range n {
			offers.Tools = append(offers.Tools, tool(fmt.Sprint("tool", i)))
			offers.Resources = append(offers.Resources, &mcp.Resource{URI: fmt.Sprint("mem://", i), Name: fmt.Sprint(i)})
		}
		p, log := newPeer(offers), slog.New(slog.DiscardHandler)
		sup := supervisor.New(supervisor.Options{
			Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
			Log:   log,
		})
		if diff := sup.Apply([]manifest.Tool{{Name: "peer", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
			t.Fatal(diff.Failed)
		}
		b := mcpbridge.New(sup, mcpbridge.Options{Version: "1", Rules: ruled{set}, Log: log})
		if tools, resources := b.SeenBy("bob", "tool0", "mem://0"); !tools || !resources {
			t.Fatalf("without an entry: a tool: %t, a resource: %t", tools, resources)
		}
		return func() {
			if tools, resources := b.SeenBy("ann", "tool0", "mem://0"); tools || resources {
				t.Fatalf("a tool: %t, a resource: %t", tools, resources)
			}
		}
	})
}

// SPEC-TOOLS 8.6: the lists of callers whom the rules treat alike are made once, for the first of them, and not for each request.
func TestT86ListsAreMadeOnceForARole(t *testing.T) {
	at := func(name string) manifest.Reference { return manifest.Reference{Name: name, At: "a.yaml:1:1"} }
	one, other := []manifest.Reference{at("one")}, []manifest.Reference{at("other")}
	set := rules.New(manifest.Rules{Roles: []manifest.Role{
		{Reference: at("one"), Permissions: []manifest.Right{{Tool: "tool0"}}}, {Reference: at("other"), Permissions: []manifest.Right{{Tool: "tool1"}}},
	}}, []rules.Binding{{Caller: "ann", Roles: one}, {Caller: "bob", Roles: one}, {Caller: "eve", Roles: other}}, nil)
	p, log := newPeer(peer.Offers{Known: true, Tools: []*mcp.Tool{tool("tool0"), tool("tool1")}}), slog.New(slog.DiscardHandler)
	sup := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		Log:   log,
	})
	if diff := sup.Apply([]manifest.Tool{{Name: "peer", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
	b := mcpbridge.New(sup, mcpbridge.Options{Version: "1", Rules: ruled{set}, Log: log})
	first := map[string]any{}
	for range 3 {
		for _, caller := range []string{"ann", "bob", "eve"} {
			got, n := b.ViewOf(caller)
			if n > 2 {
				t.Fatalf("there are %d lists for two roles", n)
			}
			if first[caller] == nil {
				first[caller] = got
			} else if first[caller] != got {
				t.Errorf("the lists of %s were made again", caller)
			}
		}
	}
	if first["ann"] != first["bob"] || first["ann"] == first["eve"] {
		t.Errorf("ann and bob have the same lists: %t; ann and eve: %t", first["ann"] == first["bob"], first["ann"] == first["eve"])
	}
}

// SPEC-TOOLS 8.6, SPEC N2: who may not call a tool learns of it neither by the headers that repeat its arguments nor by the
// readiness.
func TestT86HeadersAndReadinessNameNoHiddenTool(t *testing.T) {
	at := manifest.Reference{Name: "none", At: "a.yaml:1:1"}
	set := rules.New(manifest.Rules{Roles: []manifest.Role{{Reference: at}}}, []rules.Binding{{Caller: "ann", Roles: []manifest.Reference{at}}}, nil)
	hidden := tool("wipe")
	hidden.InputSchema = json.RawMessage(`{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Secret-Zone"}}}`)
	p, log := newPeer(peer.Offers{Known: true, Tools: []*mcp.Tool{hidden}}), slog.New(slog.DiscardHandler)
	sup := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		Log:   log,
	})
	if diff := sup.Apply([]manifest.Tool{{Name: "peer", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
	starting := []string{"secretslow"}
	w := &world{bridge: mcpbridge.New(sup, mcpbridge.Options{Version: "1", Rules: ruled{set}, Log: log, Starting: func() []string { return starting }})}
	f := w.front(t, httpfront.Settings{Verify: tokens})
	body, headers := newEra("tools/call", "wipe", `"name":"wipe","arguments":{"zone":"eu"}`)
	for who, says := range map[string]bool{"ann": false, "bob": true} {
		r := f.post(t, body, append(headers, bearer(who)...)...)
		if got := strings.Contains(r.raw, "Secret-Zone"); got != says {
			t.Errorf("%s calls: %d %s", who, r.status, r.raw)
		}
		r = f.send(t, http.MethodGet, "/readyz", "", bearer(who)...)
		if got := strings.Contains(r.raw, "secretslow"); got != says {
			t.Errorf("%s while something starts: %s", who, r.raw)
		}
	}
	starting = nil
	for who, says := range map[string]bool{"ann": false, "bob": true} {
		if r := f.send(t, http.MethodGet, "/readyz", "", bearer(who)...); strings.Contains(r.raw, `"tools":`) != says {
			t.Errorf("%s: %s", who, r.raw)
		}
	}
}
