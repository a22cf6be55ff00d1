package mcpbridge

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Exchange answers a request, on every transport in the same order: hold room for the
// answer, make it, write it, give back the room, and write the call into the log. When it
// is called, the bytes of the request are counted and its id is taken; to give these back
// is write's, which also gives back the room, by release, when the answer is written. code is
// that of an error; 0 for none. ctx is r's.
func (b *Bridge) Exchange(r *Request, write func(response wire.Parts, code int64, release func())) {
	ctx, release := b.room.Hold(r.ctx, r.from.As)
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

// respond makes the response to a request. A panic fails that request, no more.
func (b *Bridge) respond(ctx context.Context, r *Request) (response wire.Parts, code int64) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("panic in a request", "method", r.Method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			response, code = refusalOf(r, wire.InternalError())
		}
	}()
	result, refused := methods[r.Method].serve(b, ctx, r)
	if refused != nil {
		return refusalOf(r, refused)
	}
	response = append(make(wire.Parts, 0, len(result)+4), wire.ResponseHead, r.ID, wire.ResultKey)
	return append(append(response, result...), wire.Closing), 0
}

func refusalOf(r *Request, refused *jsonrpc.Error) (wire.Parts, int64) {
	return wire.Parts{wire.ErrorOf(r.ID, refused)}, refused.Code
}
