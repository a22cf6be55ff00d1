package httpfront

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// echo is a catalog with one tool, which answers at once.
type echo struct{ others }

// others are the methods of a catalog that no test here calls.
type others interface {
	Request(ctx context.Context, req peer.Request) (json.RawMessage, error)
	RequestOf(ctx context.Context, p supervisor.Peer, req peer.Request) (json.RawMessage, error)
	End(of func(turns.Owner) bool)
	Updated() <-chan string
}

func (echo) Catalog() *supervisor.Catalog {
	return &supervisor.Catalog{Tools: []*mcp.Tool{{Name: "echo", InputSchema: map[string]any{"type": "object"}}}}
}

func (echo) Call(context.Context, peer.Call) (peer.Answer, error) {
	return peer.Answer{Result: &mcp.CallToolResult{}}, nil
}

func (echo) Settle(context.Context) {}

func (echo) Waiting(ctx context.Context, _ turns.Owner) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

// newBridge returns a bridge of that catalog, with metrics that are not found.
func newBridge() *mcpbridge.Bridge {
	return mcpbridge.New(echo{}, bridgeOptions())
}

func bridgeOptions() mcpbridge.Options {
	return mcpbridge.Options{Version: "1", Log: slog.New(slog.DiscardHandler), Metrics: http.NotFoundHandler()}
}

// aToken accepts the tokens of two callers.
func aToken(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if token != "ann" && token != "bob" {
		return nil, fmt.Errorf("%w: not one of ours", auth.ErrInvalidToken)
	}
	return &auth.TokenInfo{UserID: token}, nil
}

// bearer returns the headers of a caller, and more.
func bearer(caller string, more ...string) []string {
	return append([]string{"Authorization", "Bearer " + caller}, more...)
}

// posted are the headers of each message.
var posted = []string{"Accept", "application/json, text/event-stream", "Content-Type", "application/json"}

const (
	echoCall  = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	aPing     = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	aGreeting = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
)
