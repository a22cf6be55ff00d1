package remote_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// SPEC-TOOLS 3.5, D8: a remote server of 2026-07-28 has no session. Each request has the
// headers of that version, and what it requires is asked of the client.
func TestD8AStatelessServer(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if answer, ok := req.Params.InputResponses["who"].(*mcp.ElicitResult); ok {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + answer.Content["name"].(string)}}}, nil
			}
			res := &mcp.CallToolResult{}
			res.InputRequests = mcp.InputRequestMap{"who": &mcp.ElicitParams{Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)}}
			return res, nil
		})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	var mu sync.Mutex
	var seen []string
	var regions []string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(raw)))
		mu.Lock()
		seen = append(seen, r.Method+" "+r.Header.Get("Mcp-Method"))
		if region := r.Header.Get("Mcp-Param-Region"); region != "" {
			regions = append(regions, region)
		}
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	l := connect(t, front.URL)
	l.offers(1)
	for _, region := range []string{"here", "Zürich"} {
		if got, err := l.call("far--ask", `{"region":"`+region+`"}`, &teller{}); got != "hello Ada" || err != nil {
			t.Errorf("the call gave %q, %v", got, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.Contains(seen, "POST initialize") || slices.Contains(seen, "POST ") || !slices.Contains(seen, "POST server/discover") {
		t.Errorf("the server saw %q", seen)
	}
	if want := []string{"here", "here", "=?base64?WsO8cmljaA==?=", "=?base64?WsO8cmljaA==?="}; !slices.Equal(regions, want) {
		t.Errorf("the regions were %q, want %q", regions, want)
	}
}

var _ peer.Client = (*teller)(nil)
