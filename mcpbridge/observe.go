package mcpbridge

import (
	"context"
	"encoding/json"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// CallStart is a call as it begins.
type CallStart struct {
	Tool string // as the client wrote it
	// Listed says that there is such a tool. The name of one that there is not
	// can be anything, as long as a request, and another each time.
	Listed       bool
	ID           string // the call_id of the log
	Caller       string // the authenticated subject, else the transport
	Session      string // enough to tell sessions apart; "" where there is none
	Transport    client.Transport
	Version      string          // of the protocol; "" where the client need not say it
	Request      json.RawMessage // the JSON-RPC id, if it is at hand
	RequestBytes int             // of the arguments
	// Parent is where the client's trace is, from _meta or else from the HTTP
	// headers; zero if it sent none. It is in the context as well.
	Parent trace.Context
}

// CallEnd is how a call ended.
type CallEnd struct {
	OK            bool
	Code          string // why not: a fault.Code, a tool's own code, or a JSON-RPC error's number
	IsError       bool   // the answer is a result with isError
	Fault         *fault.Error
	Attempts      int // that were made; 1 as a rule
	ResponseBytes int // of the result that the client gets; see outcome
	Took          time.Duration
}

// observe tells the observer, if there is one, of a call that begins. The
// context is the call's from here on; ended is to be told how it ends.
func (b *Bridge) observe(ctx context.Context, id string, asked *peer.Call, from *client.Origin) (_ context.Context, ended func(CallEnd)) {
	ctx = trace.With(ctx, from.Parent)
	if b.opts.Observe == nil {
		return ctx, func(CallEnd) {}
	}
	_, listed := b.listedTraits(asked.Tool)
	return b.opts.Observe(ctx, CallStart{
		Tool:         asked.Tool,
		Listed:       listed,
		ID:           id,
		Caller:       from.Caller,
		Session:      wire.Shortened(from.Session),
		Transport:    from.Transport,
		Version:      from.Version,
		Request:      from.Request,
		RequestBytes: len(asked.Args),
		Parent:       from.Parent,
	})
}
