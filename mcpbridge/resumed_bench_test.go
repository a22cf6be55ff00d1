package mcpbridge_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// BenchmarkSessionCall is a call of a session whose answer is written at once, without a network.
func BenchmarkSessionCall(b *testing.B) {
	c := newCatalog()
	c.set(tool("echo"))
	c.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return text(strings.Repeat("x", 64)), nil
	})
	h := httpfront.New(mcpbridge.New(c, mcpbridge.Options{Version: "1", Log: slog.New(slog.DiscardHandler)}), httpfront.Settings{Loopback: true})
	post := func(body, session string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		out := httptest.NewRecorder()
		h.ServeHTTP(out, req)
		return out
	}
	session := post(initialize("2025-11-25"), "").Header().Get("Mcp-Session-Id")
	body := call(1, "echo")
	b.ReportAllocs()
	for b.Loop() {
		out := post(body, session)
		if raw, _ := io.ReadAll(out.Body); out.Code != http.StatusOK || !strings.Contains(string(raw), "result") {
			b.Fatalf("%d %s", out.Code, raw)
		}
	}
}
