package mcpbridge

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/client"
)

// Call answers a call that comes from beside MCP with a CallToolResult as JSON,
// or with a JSON-RPC error. It is logged and observed as any other; but the
// answer is whole, however large it is, since there is no client here that
// would drop its connection for it.
func (b *Bridge) Call(ctx context.Context, asked peer.Call) (json.RawMessage, *jsonrpc.Error) {
	answer, made, rpcErr := b.answerCall(ctx, &asked, &client.Origin{Caller: asked.Caller, Transport: client.Control, Whole: true})
	b.record(ctx, made)
	if rpcErr != nil {
		return nil, rpcErr
	}
	result, err := b.encoded(answer, false)
	if err != nil {
		b.log.Error("encode an answer", "tool", asked.Tool, "err", err)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error; Orla's log has the details"}
	}
	return result.Join(), nil
}
