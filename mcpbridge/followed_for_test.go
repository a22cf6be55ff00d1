package mcpbridge_test

import (
	"bufio"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/subscription"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// forbids forbids one agent and one task to read.
type forbids struct {
	ruled
	now    atomic.Pointer[rules.Caller] // nil for nobody
	judged atomic.Int64
}

func (f *forbids) May(c rules.Caller, _ func() *rules.Target, _ *peer.Noted) error {
	defer f.judged.Add(1)
	if no := f.now.Load(); no != nil && (c.Agent == no.Agent || c.Task == no.Task) {
		return fault.New(fault.PermissionDenied, "tool_permission_denied")
	}
	return nil
}

// SPEC-TOOLS 8.6, SPEC N1: who follows a resource for an agent or a task is told of no change of it when the rules forbid them to read it.
func TestT86WhatIsFollowedForAnAgentIsJudgedAgain(t *testing.T) {
	p, log, no := newPeer(everything()), slog.New(slog.DiscardHandler), &forbids{}
	sup := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return p, nil }},
		Log:   log,
	})
	if diff := sup.Apply([]manifest.Tool{{Name: "box", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
	w := &world{bridge: mcpbridge.New(sup, mcpbridge.Options{Version: "1", Rules: no, Log: log})}
	serve(t, sup.Serve)
	serve(t, w.bridge.Serve)
	f := w.front(t, httpfront.Settings{})
	follow := func(own string) *rawSSE {
		body, headers := newEra("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["mem://a","mem://b"]}`)
		body = strings.Replace(body, `"_meta":{`, `"_meta":{`+own+`,`, 1)
		res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...)
		stream := &rawSSE{f: f, scan: bufio.NewScanner(res.body)}
		if got := stream.data(t); !strings.Contains(got, "acknowledged") {
			t.Fatalf("%s: %s", own, got)
		}
		return stream
	}
	all := map[string]*rawSSE{}
	for _, own := range []string{`"orloj.dev/agent":"bot"`, `"orloj.dev/task":"night"`, `"orloj.dev/agent":"free","orloj.dev/task":"day"`} {
		all[own] = follow(own)
	}
	no.now.Store(&rules.Caller{Agent: "bot", Task: "night"})
	judged := no.judged.Load()
	p.updated <- "mem://a"
	if got := all[`"orloj.dev/agent":"free","orloj.dev/task":"day"`].data(t); !strings.Contains(got, "mem://a") {
		t.Errorf("who follows it for others: %s", got)
	}
	eventually(t, "all are judged", func() bool { return no.judged.Load() == judged+int64(len(all)) })
	no.now.Store(nil)
	p.updated <- "mem://b"
	for own, stream := range all {
		if got := stream.data(t); !strings.Contains(got, "mem://b") {
			t.Errorf("%s is told first of %s", own, got)
		}
	}
}

// SPEC S2, N1: what is kept of a resource that a client follows is bounded, also the agent that it names.
func TestS2AnAgentThatFollowsHasAShortName(t *testing.T) {
	w, _ := auditedWorld(t, newPeer(everything()))
	f := w.front(t, httpfront.Settings{})
	for n, want := range map[int]string{subscription.MaxAgent: "acknowledged", subscription.MaxAgent + 1: "256 bytes at most"} {
		body, headers := newEra("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["mem://a"]}`)
		body = strings.Replace(body, `"_meta":{`, `"_meta":{"orloj.dev/agent":"`+strings.Repeat("a", n)+`",`, 1)
		res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...)
		if line, err := bufio.NewReader(res.body).ReadString('}'); !strings.Contains(line, want) {
			t.Errorf("an agent of %d bytes gets %s, %v; want %s", n, line, err, want)
		}
	}
}
