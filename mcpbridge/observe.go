package mcpbridge

import (
	"context"
	"encoding/json"
	"time"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// CallStart describes a call that begins.
type CallStart struct {
	Tool string // as the client wrote it
	// Listed says that the tool exists. The name of one that does not can be any text of any
	// length, and a different one in each call.
	Listed    bool
	ID        string // the call_id of the log
	Caller    string // the authenticated subject, else the transport
	Session   string // the beginning of its id, enough to distinguish sessions; "" without one
	Transport client.Transport
	Version   string          // of the protocol; "" where the client need not say it
	Request   json.RawMessage // the JSON-RPC id, if it is at hand
	Args      json.RawMessage // the arguments, as the client wrote them; only until Observe returns
	// Parent is the client's trace context, from _meta or else from the HTTP headers; zero if
	// it sent none. The context has it too.
	Parent trace.Context
}

// CallEnd describes how a call ended.
type CallEnd struct {
	OK            bool
	Code          string // why not: a fault.Code, a tool's own code, or a JSON-RPC error's number
	IsError       bool   // the answer is a result with isError
	Attempts      int    // how many were made; usually 1
	ResponseBytes int    // of the result that the client gets; see outcome
	Took          time.Duration
}

// observe calls Options.Observe, if it is set. The call uses the context that it returns, and
// calls ended when it ends.
func (b *Bridge) observe(ctx context.Context, id string, asked *peer.Call, from *client.Origin) (_ context.Context, ended func(CallEnd)) {
	ctx = trace.With(ctx, from.Parent)
	if b.opts.Observe == nil {
		return ctx, func(CallEnd) {}
	}
	_, listed := b.listedTraits(asked.Tool)
	return b.opts.Observe(ctx, CallStart{
		Tool:      asked.Tool,
		Listed:    listed,
		ID:        id,
		Caller:    from.Caller,
		Session:   wire.Shortened(from.Session),
		Transport: from.Transport,
		Version:   from.Version,
		Request:   from.Request,
		Args:      asked.Args,
		Parent:    from.Parent,
	})
}
