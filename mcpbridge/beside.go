package mcpbridge

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/client"
)

// Call answers a call that does not come by MCP, such as one of the control API, with a
// CallToolResult as JSON or with a JSON-RPC error. It is logged and observed like any other
// call. The answer is never cut: MCP clients drop the connection if an answer is too large,
// and this caller does not.
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
