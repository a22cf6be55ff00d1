package mcpbridge

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Exchange answers a request. The order is the same on every transport: hold room for the
// answer, make the answer, write it, give back the room, log the call. Before Exchange, the
// transport has counted the bytes of the request and noted its id. write gives both back, and
// calls release when the answer is written. code is that of the JSON-RPC error; 0 for none.
func (b *Bridge) Exchange(r *Request, write func(response wire.Parts, code int64, release func())) {
	ctx, release := b.room.Open(r.ctx, r.from.As)
	response, code := b.respond(ctx, r)
	r.end()
	if also := r.release; also != nil {
		own := release
		release = func() { own(); also() }
	}
	write(response, code, release)
	defer recovered.To(b.log, "write down a call", nil)
	b.record(ctx, r.made)
}

// respond makes the response to a request. A panic fails the request, and nothing else.
func (b *Bridge) respond(ctx context.Context, r *Request) (response wire.Parts, code int64) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("panic in a request", "method", r.Method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			response, code = refusalOf(r, wire.InternalError())
		}
	}()
	result, refused := methods[r.Method].serve(b, ctx, r)
	if refused != nil {
		b.noteRefused(ctx, r, refused)
		return refusalOf(r, refused)
	}
	response = append(make(wire.Parts, 0, len(result)+4), wire.ResponseHead, r.ID, wire.ResultKey)
	return append(append(response, result...), wire.Closing), 0
}

func refusalOf(r *Request, refused *jsonrpc.Error) (wire.Parts, int64) {
	return wire.Parts{wire.ErrorOf(r.ID, refused)}, refused.Code
}
