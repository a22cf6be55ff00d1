package mcpbridge_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/client"
)

// A call from beside MCP is observed as any other, and its answer is not cut.
func TestJ2ACallFromBesideIsWholeAndObserved(t *testing.T) {
	seen := &spy{}
	w := newWorld(t, small, func(o *mcpbridge.Options) { o.Observe = seen.observe })
	long := strings.Repeat("é", 1<<20)
	w.gives(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: long}}}, nil)
	raw, rpcErr := w.bridge.Call(t.Context(), peer.Call{Tool: "echo", Args: json.RawMessage(`{}`), Caller: "cli"})
	var res mcp.CallToolResult
	if err := json.Unmarshal(raw, &res); rpcErr != nil || err != nil {
		t.Fatalf("%v, %v", rpcErr, err)
	}
	if got := textOf(t, &res); got != long {
		t.Errorf("%d bytes; want %d", len(got), len(long))
	}
	starts, ends := seen.take()
	if len(starts) != 1 || len(ends) != 1 || starts[0].Caller != "cli" || starts[0].Transport != client.Control || !ends[0].OK {
		t.Errorf("observed %+v, %+v", starts, ends)
	}
	if _, rpcErr := w.bridge.Call(t.Context(), peer.Call{Tool: "absent"}); rpcErr == nil {
		t.Error("a call of a tool that there is not has no error")
	}
}
