package mcpbridge

import (
	"context"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// noted answers a request by do, with a line in the audit log when it has ended (SPEC-TOOLS 8.8). asked is what was asked for, of which
// do has noted what Options.Audit wants.
func (b *Bridge) noted(ctx context.Context, r *Request, asked *peer.Request, do func() (wire.Parts, *jsonrpc.Error)) (result wire.Parts, refused *jsonrpc.Error) {
	if b.opts.Audit == nil {
		return do()
	}
	r.noted.Store(true)
	noted, ended, err := b.opts.Audit()
	if err != nil {
		return nil, b.refused(ctx, r.Method, err)
	}
	asked.Noted = noted
	outcome := string(fault.ExecutionFailed) // if it panics
	defer func() { ended(trace.With(ctx, r.from.Parent), asked, outcome) }()
	result, refused = do()
	switch {
	case refused != nil:
		outcome = codeOf(refused)
	case noted.Requires:
		outcome = "input_required"
	default:
		outcome = "ok"
	}
	return result, refused
}

// noteRefused has a line in the audit log of a request that was refused before it got to noted.
func (b *Bridge) noteRefused(ctx context.Context, r *Request, refused *jsonrpc.Error) {
	if b.opts.Audit == nil || !methods[r.Method].noted || r.noted.Load() {
		return
	}
	noted, ended, err := b.opts.Audit()
	if err != nil { // it counts
		return
	}
	asked := r.asking(r.Params.Raw)
	asked.Noted = noted
	ended(trace.With(ctx, r.from.Parent), &asked, codeOf(refused))
}

// codeOf returns the code of an error that a client gets: that of a fault, else that of JSON-RPC.
func codeOf(refused *jsonrpc.Error) string {
	if code := rawjson.String(rawjson.Get(refused.Data, results.MetaToolCode)); code != "" {
		return code
	}
	return strconv.FormatInt(refused.Code, 10)
}
