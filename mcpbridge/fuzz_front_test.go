package mcpbridge_test

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// FuzzFront posts any body with any headers: the front never fails inside, what it
// answers as JSON is JSON, and no tool runs for a page of another origin, for
// another host, or for what a form can send.
func FuzzFront(f *testing.F) {
	newest, _ := newEra("tools/call", "echo", `"name":"echo"`)
	for _, seed := range [][5]string{
		{call(1, "echo"), "application/json", "", "127.0.0.1", ""},
		{newest, "application/json", "", "localhost:8080", "2026-07-28\ntools/call\necho"},
		{newest, "application/json; charset=utf-8", "http://evil.example", "localhost", "2026-07-28\ntools/call\necho"},
		{newest, "text/plain", "null", "evil.example", "2026-07-28\ntools/call\nother"},
		{initialize("2025-11-25"), "application/json", "http://localhost:3000", "[::1]:80", "2025-11-25"},
		{"[" + call(1, "echo") + "," + call("null", "echo") + "]", "application/json", "", "localhost", "2025-03-26"},
		{"[" + call(1, "echo"), "application/json", "", "localhost", ""},
		{`{"jsonrpc":"2.0","id":1e400,"method":"tools/list","params":{"cursor":"x"}}`, "application/json", "", "127.0.0.1", "v999"},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "application/json", "", "127.0.0.1", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	var ran atomic.Int64 // for a request that must not get that far
	open, closed := frontOf(f, func() {}), frontOf(f, func() { ran.Add(1) })
	f.Fuzz(func(t *testing.T, body, contentType, origin, host, era string) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // of a subscription, which does not end
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(body))
		r.Host = host
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i, value := range append([]string{contentType, origin}, strings.Split(era, "\n")...) {
			if names := []string{"Content-Type", "Origin", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"}; value != "" && i < len(names) {
				r.Header.Set(names[i], value)
			}
		}
		kind, _, err := mime.ParseMediaType(contentType)
		refused := err != nil || kind != "application/json" || origin != "" && !strings.EqualFold(hostOf(origin), host)
		h := open
		if refused {
			h = closed // where no tool may run, neither now nor after the answer
		}
		out := httptest.NewRecorder()
		h.ServeHTTP(out, r)
		if out.Code >= http.StatusInternalServerError {
			t.Fatalf("status %d: %s", out.Code, out.Body)
		}
		if out.Header().Get("Content-Type") == "application/json" && !json.Valid(out.Body.Bytes()) {
			t.Fatalf("%q is not JSON", out.Body)
		}
		if refused && (out.Code < http.StatusBadRequest || ran.Load() > 0) {
			t.Fatalf("status %d for %q of %q at %q; %d tools ran", out.Code, contentType, origin, host, ran.Load())
		}
	})
}

// frontOf is a front with a tool called echo that runs as told.
func frontOf(f *testing.F, run func()) *httpfront.Front {
	w := newWorld(f)
	w.raw("echo", func(context.Context, peer.Call) (json.RawMessage, error) {
		run()
		return json.RawMessage(`{"content":[]}`), nil
	})
	h := httpfront.New(w.bridge, httpfront.Settings{Loopback: true})
	f.Cleanup(h.CloseSessions)
	return h
}

// hostOf is the host and port of a page's origin, as the text has them.
func hostOf(origin string) string {
	_, at, _ := strings.Cut(origin, "//")
	if end := strings.IndexAny(at, "/?#"); end >= 0 {
		at = at[:end]
	}
	at = at[strings.LastIndex(at, "@")+1:]
	if plain, err := url.PathUnescape(at); err == nil {
		return plain // [::1%25eth0]
	}
	return at
}
