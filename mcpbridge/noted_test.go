package mcpbridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// auditor notes which requests have ended, and how.
type auditor struct {
	mu    sync.Mutex
	err   error // refuses requests
	lines []string
}

func (a *auditor) audit() (*peer.Noted, func(context.Context, *peer.Request, string), error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, nil, a.err
	}
	noted := &peer.Noted{}
	return noted, func(_ context.Context, req *peer.Request, outcome string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if req.Noted != noted || req.Caller == "" {
			outcome = fmt.Sprintf("of another: %+v", req)
		}
		a.lines = append(a.lines, strings.TrimSpace(req.Method+" "+noted.Target)+" "+outcome)
	}, nil
}

// refused is for Options.Refused.
func (a *auditor) refused(_ context.Context, call peer.Call, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, "tools/call "+call.Tool+" "+string(fault.CodeOf(err)))
}

// taken returns the lines since it was called last.
func (a *auditor) taken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := a.lines
	a.lines = nil
	return lines
}

// auditedWorld is a bridge to one peer, with an auditor.
func auditedWorld(t *testing.T, p *fakePeer) (*world, *auditor) {
	t.Helper()
	a, log := &auditor{}, slog.New(slog.DiscardHandler)
	sup := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		Log:   log,
	})
	if diff := sup.Apply([]manifest.Tool{{Name: "box", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
	w := &world{bridge: mcpbridge.New(sup, mcpbridge.Options{Version: "1", Log: log, Audit: a.audit, Refused: a.refused})}
	serve(t, sup.Serve)
	serve(t, w.bridge.Serve)
	return w, a
}

// SPEC-TOOLS 8.8: each request that reads, completes or follows something has one line, with what its client gets; nothing else has one. If it cannot
// have one, nobody is asked.
func TestT88EachRequestIsNotedOnce(t *testing.T) {
	asked := 0
	p := newPeer(everything())
	p.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
		asked++
		switch {
		case strings.Contains(string(req.Params), "panics"):
			panic("odd")
		case strings.Contains(string(req.Params), "fails"):
			return nil, fault.New(fault.Timeout, "late")
		case strings.Contains(string(req.Params), "requires"):
			return json.RawMessage(`{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}},"requestState":"s"}`), nil
		case strings.Contains(string(req.Params), "odd"):
			return json.RawMessage(`7`), nil
		}
		return json.RawMessage(`{}`), nil
	}
	w, a := auditedWorld(t, p)
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for _, c := range []struct {
		method, params string
		want           []string
	}{
		{"resources/read", `{"uri":"mem://a"}`, []string{"resources/read box ok"}},
		{"resources/read", `{"uri":"mem://fails"}`, []string{"resources/read box timeout"}},
		{"resources/read", `{"uri":"mem://odd"}`, []string{"resources/read box execution_failed"}},
		{"resources/read", `{"uri":"mem://panics"}`, []string{"resources/read box execution_failed"}},
		{"resources/read", `{"uri":"mem://requires"}`, []string{"resources/read box input_required"}},
		{"resources/read", `{"uri":"orla://answers/none"}`, []string{"resources/read -32602"}},
		{"resources/read", `{"uri":7}`, []string{"resources/read -32602"}},
		{"resources/read", `{"uri":"` + strings.Repeat("x", 40<<10) + `"}`, []string{"resources/read -32602"}},
		{"resources/read", `{"uri":"mem://a","URI":"mem://b"}`, []string{"resources/read -32602"}},
		{"prompts/get", `{"name":"greet"}`, []string{"prompts/get box ok"}},
		{"prompts/get", `{"name":"greet","arguments":{"a":"x"},"Arguments":{"a":"y"}}`, []string{"prompts/get -32602"}},
		{"prompts/get", `{"name":"none"}`, []string{"prompts/get -32602"}},
		{"prompts/get", `{"name":[]}`, []string{"prompts/get -32602"}},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":""}}`, []string{"completion/complete box ok"}},
		{"completion/complete", `{"ref":7}`, []string{"completion/complete -32602"}},
		{"resources/subscribe", `{"uri":"mem://a"}`, []string{"resources/subscribe box ok"}},
		{"resources/subscribe", `{"uri":7}`, []string{"resources/subscribe -32602"}},
		{"resources/unsubscribe", `{"uri":"mem://a"}`, nil},
		{"resources/list", `{}`, nil},
		{"prompts/list", `{}`, nil},
		{"tools/list", `{}`, nil},
		{"ping", `{}`, nil},
	} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, c.method, c.params)
		r := f.post(t, body, "Mcp-Session-Id", session)
		if got := a.taken(); !slices.Equal(got, c.want) {
			t.Errorf("%s %.60s: %q; want %q: %.200s", c.method, c.params, got, c.want, r.raw)
		}
	}
	a.err = fault.Wrap(fault.NotReady, errors.New("full"), "it cannot be written")
	before := asked
	for method, params := range map[string]string{
		"resources/read": `{"uri":"mem://a"}`, "prompts/get": `{"name":"greet"}`, "resources/subscribe": `{"uri":"mem://b"}`,
		"completion/complete": `{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":""}}`,
	} {
		r := f.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params), "Mcp-Session-Id", session)
		if !strings.Contains(r.raw, "not_ready") {
			t.Errorf("%s without a line: %s", method, r.raw)
		}
	}
	if asked != before {
		t.Errorf("a peer was asked %d times without a line", asked-before)
	}
}

// SPEC-TOOLS 8.8: a prompt that asks its client something has one line in the stateless era, when it has ended.
func TestT88AConversationIsNotedOnce(t *testing.T) {
	p := newPeer(everything())
	p.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
		if _, err := req.Client.Ask(ctx, "roots/list", nil); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"messages":[]}`), nil
	}
	w, a := auditedWorld(t, p)
	if _, err := w.front(t, httpfront.Settings{}).connect(t, newest, asks()).GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "greet"}); err != nil {
		t.Fatal(err)
	}
	if got := a.taken(); !slices.Equal(got, []string{"prompts/get box ok"}) {
		t.Errorf("the lines are %q", got)
	}
}

// SPEC-TOOLS 8.8: whoever goes on with a conversation that is not its own, or that never was, has a line for that.
func TestT88AStateOfSomebodyElseHasALine(t *testing.T) {
	p := newPeer(everything())
	p.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
		if _, err := req.Client.Ask(ctx, "elicitation/create", nil); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"contents":[]}`), nil
	}
	w, a := auditedWorld(t, p)
	f := w.front(t, httpfront.Settings{Verify: tokens})
	post := func(who, method, name, params string) reply {
		body, headers := newEra(method, name, params)
		body = strings.Replace(body, `Capabilities":{}`, `Capabilities":{"elicitation":{}}`, 1)
		return f.post(t, body, append(headers, bearer(who)...)...)
	}
	begun := post("ann", "resources/read", "mem://a", `"uri":"mem://a"`)
	_, state, _ := strings.Cut(begun.raw, `"requestState":"`)
	state, _, _ = strings.Cut(state, `"`)
	if !strings.HasPrefix(state, "orla:") || len(a.taken()) != 0 {
		t.Fatalf("the client is asked by %s", begun.raw)
	}
	for _, c := range []struct{ who, method, name, params, want string }{
		{"bob", "resources/read", "mem://a", `"uri":"mem://a","requestState":"` + state + `"`, "resources/read -32602"},
		{"ann", "resources/read", "mem://b", `"uri":"mem://b","requestState":"` + state + `"`, "resources/read -32602"},
		{"ann", "resources/read", "mem://a", `"uri":"mem://a","URI":"mem://b","requestState":"` + state + `"`, "resources/read -32602"},
		{"bob", "prompts/get", "greet", `"name":"greet","requestState":"orla:none"`, "prompts/get -32602"},
		{"bob", "tools/call", "echo", `"name":"echo","requestState":"orla:none"`, "tools/call echo invalid_input"},
		{"ann", "resources/read", "mem://a", `"uri":"mem://a","requestState":"` + state + `","inputResponses":{"question-1":{"action":"decline"}}`, "resources/read box ok"},
	} {
		r := post(c.who, c.method, c.name, c.params)
		if got := a.taken(); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s of %s with %s: the lines are %q, want %q: %.300s", c.method, c.who, c.params, got, c.want, r.raw)
		}
	}
}

// SPEC-TOOLS 8.8: a call or a read that claims to go on with another one, and does not, has a line.
func TestT88WhatGoesOnWithNothingIsNoted(t *testing.T) {
	w, a := auditedWorld(t, newPeer(everything()))
	f := w.front(t, httpfront.Settings{})
	for _, c := range []struct{ method, name, params, want string }{
		{"tools/call", "echo", `"name":"echo"`, "tools/call echo invalid_input"},
		{"resources/read", "mem://a", `"uri":"mem://a"`, "resources/read -32602"},
		{"resources/read", strings.Repeat("x", 40<<10), `"uri":"` + strings.Repeat("x", 40<<10) + `"`, "resources/read -32602"},
		{"prompts/get", "greet", `"name":"greet"`, "prompts/get -32602"},
	} {
		for _, state := range []string{"orla:", "peer:", ""} {
			body, headers := newEra(c.method, c.name, c.params+goOn(state+"forged", ""))
			body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"roots":{}}`, 1)
			r := f.post(t, body, headers...)
			if got := a.taken(); !slices.Equal(got, []string{c.want}) || !strings.Contains(r.raw, "-32602") {
				t.Errorf("%s of %.20s with the state %sforged: the lines are %q, and the client got %.300s", c.method, c.name, state, got, r.raw)
			}
		}
	}
}
