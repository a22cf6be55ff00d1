package mcpbridge_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC G7: a session that nobody uses holds less than a kilobyte, and what all clients of one program say is kept once.
func TestG7AnIdleSessionHoldsLittle(t *testing.T) {
	const sessions, most = 2000, 800
	h := httpfront.New(mcpbridge.New(newCatalog(), mcpbridge.Options{Version: "1", Log: slog.New(slog.DiscardHandler)}), httpfront.Settings{Loopback: true})
	post := func(body, session string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		out := httptest.NewRecorder()
		h.ServeHTTP(out, req)
		return out
	}
	hello := strings.Replace(initialize("2025-06-18"), `"capabilities":{}`, `"capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`, 1)
	open := func(n int) (held int64) {
		for range n {
			id := post(hello, "").Header().Get("Mcp-Session-Id")
			if out := post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, id); out.Code != http.StatusAccepted {
				t.Fatal(out.Code, out.Body)
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what a pool holds goes with the second one
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := open(100)
	if each := (open(sessions) - before) / sessions; each > most {
		t.Errorf("a session holds %d bytes, want at most %d", each, most)
	} else {
		t.Logf("a session holds %d bytes", each)
	}
	runtime.KeepAlive(h)
}
