package mcpbridge_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC S2: the headers of a request are dropped before it is answered, since that may take
// long, whatever kind of request it is.
func TestS2HeadersAreDroppedBeforeARequestIsAnswered(t *testing.T) {
	told := map[context.Context]int{}
	w := newWorld(t, func(o *mcpbridge.Options) { o.HeadersRead = func(ctx context.Context, _ bool) { told[ctx]++ } })
	h := httpfront.New(w.bridge, httpfront.Settings{Loopback: true})
	var asked *http.Request
	kept := 0
	w.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		kept = len(asked.Header)
		return text("done"), nil
	})
	session := ""
	do := func(method, path, body string, headers ...string) *httptest.ResponseRecorder {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		asked = httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
		for i, all := 0, append(headers, "Accept", "application/json, text/event-stream", "Content-Type", "application/json", "X", "y"); i < len(all); i += 2 {
			asked.Header.Set(all[i], all[i+1])
		}
		if session != "" {
			asked.Header.Set("Mcp-Session-Id", session)
		}
		if method == http.MethodGet || strings.Contains(body, "subscriptions/listen") {
			leave() // such a stream ends at once
		}
		out := httptest.NewRecorder()
		kept = -1
		h.ServeHTTP(out, asked)
		if out.Code != http.StatusOK || len(asked.Header) > 0 || kept > 0 {
			t.Errorf("%s %s %.50s: %d %s, and %d headers are kept, %d meanwhile", method, path, body, out.Code, out.Body, len(asked.Header), kept)
		}
		return out
	}
	stateless, with := newEra("tools/call", "echo", `"name":"echo","arguments":{}`)
	do(http.MethodPost, "/mcp", stateless, with...)
	listen, with := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
	do(http.MethodPost, "/mcp", listen, with...)
	do(http.MethodPost, "/mcp", call(1, "echo"))
	do(http.MethodGet, "/sse", "")
	session = do(http.MethodPost, "/mcp", initialize("2025-03-26")).Header().Get("Mcp-Session-Id")
	do(http.MethodPost, "/mcp", call(1, "echo"))
	do(http.MethodPost, "/mcp", "["+call(1, "echo")+"]")
	do(http.MethodGet, "/mcp", "")
	if len(told) < 8 {
		t.Errorf("of %d requests it was told", len(told))
	}
	for _, n := range told {
		if n != 1 {
			t.Errorf("of one it was told %d times", n)
		}
	}
}
