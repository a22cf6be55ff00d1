package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC N2: with tokens, /readyz tells those without one the status alone.
func TestN2ReadinessNamesNothingToStrangers(t *testing.T) {
	names := []string{"db"}
	w := newWorld(t, func(o *mcpbridge.Options) { o.Starting = func() []string { return names } })
	f := w.front(t, httpfront.Settings{Verify: tokens})
	check := func(want string, headers ...string) {
		t.Helper()
		if r := f.send(t, http.MethodGet, "/readyz", "", headers...); strings.TrimSpace(r.raw) != want {
			t.Errorf("%q: %s, want %s", headers, r.raw, want)
		}
	}
	ann := []string{"Authorization", "Bearer ann"}
	for _, stranger := range [][]string{nil, {"Authorization", "Bearer eve"}, {"Authorization", "ann"}, {"Authorization", "Basic ann"}} {
		check(`{"status":"starting"}`, stranger...)
	}
	check(`{"status":"starting","waiting_for":["db"]}`, ann...)
	names = nil
	check(`{"status":"ready"}`)
	check(`{"status":"ready","tools":1}`, ann...)
	f.Configure(httpfront.Settings{Loopback: true})
	check(`{"status":"ready","tools":1}`)
	check(`{"status":"ready"}`, "Host", "rebound.example")
}

// SPEC N2: a cancel, a DELETE or a stream with the session id of another caller does
// nothing to the session.
func TestN2ASessionIsItsCallersAlone(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.answer("echo", g.answer)
	f := w.front(t, httpfront.Settings{Verify: tokens})
	ann := []string{"Authorization", "Bearer ann"}
	session := f.initialize(t, ann...)
	ann = append(ann, "Mcp-Session-Id", session)
	bob := []string{"Authorization", "Bearer bob", "Mcp-Session-Id", session}

	answered := make(chan reply, 1)
	go func() { answered <- f.post(t, call(7, "echo"), ann...) }()
	<-g.began
	for _, r := range []reply{
		f.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, bob...),
		f.send(t, http.MethodDelete, "/mcp", "", bob...),
		f.send(t, http.MethodGet, "/mcp", "", bob...),
		f.post(t, call(8, "echo"), bob...),
	} {
		if r.status != http.StatusNotFound {
			t.Errorf("another caller gets %d %s, want 404", r.status, r.raw)
		}
	}
	close(g.open)
	if r := <-answered; r.status != http.StatusOK || r.failed {
		t.Errorf("the call of the session's caller: %d %s", r.status, r.raw)
	}
	if r := f.post(t, call(9, "echo"), ann...); r.status != http.StatusOK || r.failed {
		t.Errorf("another call of it: %d %s", r.status, r.raw)
	}
}

// SPEC N2: the header that marks a legacy stream inside Orla means nothing when a client
// sends it.
func TestN2AClientCannotChooseItsTransport(t *testing.T) {
	var seen []client.Transport
	w := newWorld(t, func(o *mcpbridge.Options) {
		o.Observe = func(ctx context.Context, c mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
			seen = append(seen, c.Transport)
			return ctx, func(mcpbridge.CallEnd) {}
		}
	})
	f := w.front(t, httpfront.Settings{})
	progress := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"progressToken":1}}}`
	for _, body := range []string{call(1, "echo"), progress} {
		if r := f.post(t, body, "Orla-Transport", "sse", "Mcp-Session-Id", f.initialize(t)); r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.raw)
		}
	}
	if fmt.Sprint(seen) != "[http http]" {
		t.Errorf("the calls came by %v", seen)
	}
}

// SPEC S2: a _meta over 64 KiB is refused, on each transport and in batches. Arguments
// may be as large as they are.
func TestS2MetaIsBounded(t *testing.T) {
	w := newWorld(t)
	w.raw("echo", func(context.Context, peer.Call) (json.RawMessage, error) { return json.Marshal(text("ok")) })
	f := w.front(t, httpfront.Settings{})
	large := strings.Repeat("x", 64<<10)
	with := func(meta, arguments string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"a":%q},"_meta":{"a":%q}}}`, arguments, meta)
	}
	headers := []string{"Mcp-Session-Id", f.initialize(t)}
	if r := f.post(t, with("", large), headers...); r.status != http.StatusOK || r.failed {
		t.Errorf("large arguments: %d %s", r.status, r.raw)
	}
	batch := "[" + call(1, "echo") + "," + with(large, "") + "]" // whose other messages have answers
	for body, status := range map[string]int{with(large, ""): http.StatusBadRequest, batch: http.StatusOK} {
		r := f.post(t, body, headers...)
		if r.status != status || !strings.Contains(r.raw, "-32602") || !strings.Contains(r.raw, "_meta is over 65536 bytes") {
			t.Errorf("%.20s: %d %.300s", body, r.status, r.raw)
		}
	}
	s := f.connectSSE(t, nil)
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Meta: mcp.Meta{"a": large}})
	if err == nil || !strings.Contains(err.Error(), "_meta is over 65536 bytes") {
		t.Errorf("over SSE: %v", err)
	}
}

// What a message says of its version has to stand in the header, however its key is written:
// a listen that was taken for one of a session was counted nowhere.
func TestN2AVersionWithEscapesIsOne(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	session := f.initialize(t)
	for _, method := range []string{"subscriptions/listen", "tools/list"} {
		body, headers := newEra(method, "", `"notifications":{"toolsListChanged":true}`)
		body = strings.Replace(body, "io.modelcontextprotocol/p", `io.modelcontextprotocol\/p`, 1)
		for _, headers := range [][]string{{"Mcp-Session-Id", session}, nil, headers} {
			if r := f.post(t, body, headers...); r.status != http.StatusBadRequest || !r.failed {
				t.Errorf("%s, %v: %d %s", method, headers, r.status, r.raw)
			}
		}
	}
}

// An initialize without params, or with odd ones, is refused: it ended its connection by a
// panic.
func TestN2AnInitializeWithoutParamsIsRefused(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	for _, params := range []string{"", `,"params":null`, `,"params":[]`, `,"params":7`} {
		r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"initialize"`+params+`}`)
		if !r.failed || r.code != -32602 || r.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%q: %d %s", params, r.status, r.raw)
		}
	}
	if strings.Contains(w.log.String(), "panic") {
		t.Error(w.log.String())
	}
}
