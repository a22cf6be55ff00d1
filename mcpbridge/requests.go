package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
)

// request passes on what is no call: a peer answers it, and its result goes out
// as it is.
func (b *Bridge) request(ctx context.Context, method, name string, r request, session *mcp.ServerSession) (mcp.Result, error) {
	b.asksLevel(ctx, r)
	who := b.newCaller(ctx, r, session)
	defer who.end()
	params := b.ownParams(r.GetParams())
	of := asking{client: who.id, method: method, name: name}
	if who.newest { // its trace may be another when it is repeated
		of.args = replaced(params, member{Key: "_meta", Value: nil})
	}
	input, err := b.inputIn(r, of)
	if err != nil {
		return nil, err
	}
	return b.converse(ctx, r, who, of, func(ctx context.Context, client peer.Client) (mcp.Result, error) {
		res, err := b.requested(ctx, r, of, peer.Request{Method: method, Params: params, Client: client, Line: who.line, Input: input})
		if missing := who.missing(); missing != nil && who.newest && err != nil {
			return nil, missing
		}
		return res, err
	})
}

// requested does what a request asks for.
func (b *Bridge) requested(ctx context.Context, r mcp.Request, of asking, asked peer.Request) (mcp.Result, error) {
	method := asked.Method
	raw, err := b.catalog.Request(ctx, asked)
	if err != nil {
		return nil, b.refused(ctx, method, err)
	}
	p, ok := look(rawjson.Compact(raw), false)
	if !ok {
		return nil, b.refused(ctx, method, fault.New(fault.ExecutionFailed, "%s: the answer is no result", method))
	}
	p.sign(b.states, of)
	return b.passOn(r, method, p), nil
}

// passOn is the result of a request that is no call.
func (b *Bridge) passOn(r mcp.Request, method string, p passedAnswer) mcp.Result {
	self := b.selfIn(r)
	if self != nil && method == methodRead && !p.requires { // the stateless era asks for it
		p.raw = cacheable(p.raw)
	}
	return &rawResult{json: p.parts(self)}
}

// ownParams are the params of a request that are for the peer: not what the
// protocol keeps for the parties, and no progress token, which is the client's.
func (b *Bridge) ownParams(params mcp.Params) json.RawMessage {
	raw, _ := plainObject(b.carrier.paramsOf(params))
	if raw == nil {
		return nil
	}
	var meta json.RawMessage
	rawjson.Members(raw, func(key string, value json.RawMessage) bool {
		if key == "_meta" {
			meta = value
		}
		return true
	})
	return replaced(raw, member{Key: "_meta", Value: ownMetaOf(meta)}, member{Key: "inputResponses", Value: nil}, member{Key: "requestState", Value: nil})
}

// cacheable says of a result that has no word on it that it is not to be kept.
func cacheable(raw json.RawMessage) json.RawMessage {
	change := []member{{Key: "ttlMs", Value: json.RawMessage("0")}, {Key: "cacheScope", Value: json.RawMessage(`"private"`)}}
	rawjson.Members(raw, func(key string, _ json.RawMessage) bool {
		change = slices.DeleteFunc(change, func(m member) bool { return m.Key == key })
		return true
	})
	if len(change) == 0 {
		return raw
	}
	return replaced(raw, change...)
}

// refused is the error that a client gets of a request that is no call: there
// is no result that could say it.
func (b *Bridge) refused(ctx context.Context, method string, err error) error {
	if given, ok := refusal(err); ok {
		return given
	}
	f := fault.From(err)
	b.log.WarnContext(ctx, "a request failed", "method", method, "code", string(f.Code), "reason", f.Reason, "err", f.Err)
	data, err := json.Marshal(map[string]any{MetaToolCode: f.Code, MetaRetryable: f.Retryable()})
	if err != nil { // a string and a boolean
		panic(err)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: f.Reason, Data: data}
}

// read answers a resources/read: what Orla itself keeps, or a peer's. The SDK is not asked:
// it would compile each template again.
func (b *Bridge) read(ctx context.Context, r *mcp.ReadResourceRequest) (mcp.Result, error) {
	if peer.IsOwn(r.Params.URI) {
		return b.readLarge(ctx, r)
	}
	res, err := b.request(ctx, methodRead, r.Params.URI, r, r.Session)
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && refused.Code == jsonrpc.CodeInvalidParams && !b.catalog.Catalog().Known() {
		b.settle(ctx)
		return b.request(ctx, methodRead, r.Params.URI, r, r.Session)
	}
	return res, err
}

// get answers a prompts/get.
func (b *Bridge) get(ctx context.Context, r *mcp.GetPromptRequest) (mcp.Result, error) {
	named := func(p *mcp.Prompt) bool { return p.Name == r.Params.Name }
	if !slices.ContainsFunc(b.catalog.Catalog().Prompts, named) {
		b.settle(ctx)
	}
	return b.request(ctx, methodGetPrompt, r.Params.Name, r, r.Session)
}

// complete answers a completion/complete.
func (b *Bridge) complete(ctx context.Context, r *mcp.CompleteRequest) (mcp.Result, error) {
	if r.Params.Ref == nil || r.Params.Argument.Name == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "completion/complete needs ref and argument.name"}
	}
	return b.request(ctx, methodComplete, "", r, r.Session)
}
