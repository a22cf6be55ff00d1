//go:build !race

package supervisor_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// SPEC L1: what is known of a call is not copied to the heap, so that a call of a tool without a policy allocates little.
func TestL1ACallIsNotOnTheHeap(t *testing.T) {
	answer := &mcp.CallToolResult{}
	w := newWorld()
	w.with = func(f *fake) {
		f.call = func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return answer, nil }
	}
	w.Apply([]manifest.Tool{tool("a")})
	call := peer.Call{Tool: "a", Args: json.RawMessage(`{}`)}
	got := testing.AllocsPerRun(100, func() {
		if _, err := w.Call(t.Context(), call); err != nil {
			t.Error(err)
		}
	})
	if got > 5 {
		t.Errorf("a call allocates %.0f times", got)
	}
}
