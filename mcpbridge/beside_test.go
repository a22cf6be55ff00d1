package mcpbridge_test

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
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

// SPEC N2: a call from beside MCP uses the share of its owner, and so does its answer, for as long as its request lasts.
func TestN2ACallFromBesideHasAnOwner(t *testing.T) {
	w := newWorld(t)
	owner := turns.Owner{Caller: "eve", Session: "browser"}
	var account *turns.Account
	var places []turns.Owner
	w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		account = turns.AccountOf(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		places = slices.Collect(maps.Values(w.inFlight))
		return &mcp.CallToolResult{}, account.Need(ctx, 1<<20)
	})
	free := w.bridge.Answers().Free()
	whole, end := context.WithCancel(t.Context())
	ctx, over := context.WithCancel(turns.NewAging(turns.NoLimit, 1, time.Hour).In(whole, owner))
	if _, rpcErr := w.bridge.Call(ctx, peer.Call{Tool: "echo", Caller: "eve"}); rpcErr != nil {
		t.Fatal(rpcErr)
	}
	if !slices.Equal(places, []turns.Owner{owner}) {
		t.Errorf("the call is one of %v", places)
	}
	over() // the time of the call, which is not that of its request
	<-time.After(20 * time.Millisecond)
	if account.Owner() != owner || w.bridge.Answers().Free() == free {
		t.Errorf("the answer is one of %v, and takes %d bytes", account.Owner(), free-w.bridge.Answers().Free())
	}
	end()
	for w.bridge.Answers().Free() != free {
		runtime.Gosched() // until the room is given back
	}
}
