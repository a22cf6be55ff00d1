package mcpbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/conversation"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// relay passes a request other than a call to its peer, and the peer's result to the client,
// unchanged.
func (b *Bridge) relay(ctx context.Context, r *Request, name string) (wire.Parts, *jsonrpc.Error) {
	b.asksLevel(ctx, r)
	params := wire.OwnParams(r.Params)
	of := results.Asking{Client: r.Session(), Method: r.Method, Name: name}
	asked := r.asking(params)
	if r.newest {
		of.Args = params
		if rawjson.Get(params, "_meta") != nil {
			of.Args = wire.Replaced(params, wire.Member{Key: "_meta", Value: nil}) // without the trace, which may differ when the request is repeated
		}
		var refused *jsonrpc.Error
		if asked.Input, refused = b.inputIn(r, of); refused != nil {
			return nil, refused
		}
	}
	do := func(ctx context.Context, client peer.Client) (wire.Parts, *jsonrpc.Error) {
		asked.Client = client
		return b.noted(ctx, r, &asked, func() (wire.Parts, *jsonrpc.Error) {
			res, refused := b.requested(ctx, r, of, asked)
			if r.Method == wire.MethodRead && refused != nil && refused.Code == jsonrpc.CodeInvalidParams && !b.catalog.Catalog().Known() {
				if _, refused = b.settle(ctx, r); refused == nil {
					res, refused = b.requested(ctx, r, of, asked)
				}
			}
			if missing := r.missing(); missing != nil && refused != nil {
				return nil, missing
			}
			return res, refused
		})
	}
	if r.Method == wire.MethodComplete || !r.answersLater() {
		return do(ctx, r)
	}
	return r.converse(ctx, of, do)
}

// asking returns the request with some params as it goes to a peer, without a Client.
func (r *Request) asking(params json.RawMessage) peer.Request {
	asked := peer.Request{Method: r.Method, Params: params, Owner: r.from.As, Caller: r.from.Caller, Groups: r.from.Groups, Meta: wire.OwnMetaOf(r.Params.Meta)}
	asked.Task = client.TaskOf(asked.Meta, &r.from)
	return asked
}

// requested makes a request of a peer, and returns its result as the client gets it.
func (b *Bridge) requested(ctx context.Context, r *Request, of results.Asking, asked peer.Request) (wire.Parts, *jsonrpc.Error) {
	raw, err := b.catalog.Request(ctx, asked)
	r.worked()
	if err != nil {
		return nil, b.refused(ctx, r.Method, err)
	}
	var result wire.Parts
	cached, requires := r.newest && r.Method == wire.MethodRead, false
	if err := turns.AccountOf(ctx).Work(ctx, len(raw), func() { result, requires = results.Relayed(raw, b.states, of, cached, r.self()) }); err != nil {
		return nil, b.refused(ctx, r.Method, err)
	}
	if asked.Noted != nil {
		asked.Noted.Requires = requires
	}
	if result == nil {
		return nil, b.refused(ctx, r.Method, fault.New(fault.ExecutionFailed, "%s: the answer is not a result", r.Method))
	}
	return result, nil
}

// refused returns the error that a client gets for a request other than a call. Unlike a call,
// it has no result that could report a failure.
func (b *Bridge) refused(ctx context.Context, method string, err error) *jsonrpc.Error {
	if given, ok := results.Refusal(err); ok {
		return given
	}
	f := fault.From(err)
	reason, cause := f.Log()
	b.log.WarnContext(ctx, "a request failed", "method", method, "code", string(f.Code), "reason", reason, "err", cause)
	data := rawjson.Must(map[string]any{results.MetaToolCode: f.Code, results.MetaRetryable: f.Retryable()})
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: f.Reason, Data: data}
}

// maxReadURI bounds the URI of a resource that is read, in bytes: an error repeats it.
const maxReadURI = 32 << 10

// read answers a resources/read, of an answer that Orla keeps or of a peer's resource.
func (b *Bridge) read(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	uri, ok := wire.TextOf(r.Params.URI)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	if len(uri) > maxReadURI {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the URI of a resource may have %d bytes at most", maxReadURI)}
	}
	if peer.IsOwn(uri) {
		asked := r.asking(rawjson.Pair("uri", uri))
		return b.noted(ctx, r, &asked, func() (wire.Parts, *jsonrpc.Error) { return b.readLarge(ctx, r, uri) })
	}
	return b.relay(ctx, r, uri)
}

// get answers a prompts/get.
func (b *Bridge) get(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	name, ok := wire.TextOf(r.Params.Name)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	if _, there := b.lists.made.Load().prompts.Find(name); !there {
		if _, refused := b.settle(ctx, r); refused != nil {
			return nil, refused
		}
	}
	return b.relay(ctx, r, name)
}

// complete answers a completion/complete.
func (b *Bridge) complete(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	name, _ := wire.TextOf(rawjson.Get(rawjson.Get(r.Params.Raw, "argument"), "name"))
	if !rawjson.IsObject(rawjson.Get(r.Params.Raw, "ref")) || name == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "completion/complete needs ref and argument.name"}
	}
	return b.relay(ctx, r, "")
}

// answersLater reports whether questions to the client can only be sent as the answer to its
// request, so that it answers them with a later one.
func (r *Request) answersLater() bool { return r.newest && r.says.Askable() }

// converse does the work for a request for which answersLater holds.
func (r *Request) converse(ctx context.Context, of results.Asking, do conversation.Work) (result wire.Parts, refused *jsonrpc.Error) {
	result, r.release, refused = r.bridge.conversations.Answer(ctx, r, r.Params, of, do)
	if refused != results.ErrUnknownState { // the line is that of the request that has begun the conversation
		r.noted.Store(true)
	}
	return result, refused
}

// inputIn returns the input of a client for a peer that required it, in the stateless era. It
// refuses a requestState that this client was not given for this request.
func (b *Bridge) inputIn(r *Request, of results.Asking) (in peer.Input, refused *jsonrpc.Error) {
	in.Responses, in.State = r.Params.Responses, r.Params.State
	if in.State == nil {
		return in, nil
	}
	given, ok := wire.TextOf(in.State)
	if !ok {
		return peer.Input{}, results.ErrUnknownState
	}
	if strings.HasPrefix(given, results.HeldPrefix) {
		return peer.Input{}, nil
	}
	state, ok := b.states.Check(of, given)
	if !ok {
		return peer.Input{}, results.ErrUnknownState
	}
	in.State = rawjson.Quote(state)
	return in, nil
}
