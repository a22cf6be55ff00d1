package mcpbridge

import (
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/callid"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/supervisor"
)

// served answers what came through the SDK and is not the SDK's to answer:
// calls, and requests of what peers offer. Their answers go out as they are.
func (b *Bridge) served(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.CallToolRequest:
			return b.serveCall(ctx, r, next)
		case *mcp.ListToolsRequest:
			b.settle(ctx)
			return b.listPage(ctx, r, next)
		case *mcp.ListPromptsRequest, *mcp.ListResourcesRequest, *mcp.ListResourceTemplatesRequest:
			b.settle(ctx)
		case *mcp.ReadResourceRequest:
			return b.within(ctx, r, func(ctx context.Context) (mcp.Result, error) { return b.read(ctx, r) })
		case *mcp.GetPromptRequest:
			return b.within(ctx, r, func(ctx context.Context) (mcp.Result, error) { return b.get(ctx, r) })
		case *mcp.CompleteRequest:
			return b.within(ctx, r, func(ctx context.Context) (mcp.Result, error) { return b.complete(ctx, r) })
		case *mcp.ServerRequest[*mcp.SetLoggingLevelParams]: //nolint:staticcheck // deprecated by the newest era only
			res, err := next(ctx, method, req)
			if err == nil {
				b.setLevel(ctx, r.Session, string(r.Params.Level))
			}
			return res, err
		}
		return next(ctx, method, req)
	}
}

// within answers a request that is no call, of which what holds room for answers does
// so until the SDK has written its answer.
func (b *Bridge) within(request context.Context, r mcp.Request, answer func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	from := callerOf(r.GetExtra())
	from.session = r.GetSession().ID()
	ctx, letGo := b.room.Hold(request, from.line())
	defer func() { context.AfterFunc(request, letGo) }() // it ends with the writing
	res, err := answer(ctx)
	if err != nil {
		return nil, err
	}
	return b.standIns.forLarge(request, res), nil
}

// listPage has the SDK answer a tools/list, and keeps the page for others who ask
// for it while the list is the same.
func (b *Bridge) listPage(ctx context.Context, r *mcp.ListToolsRequest, next mcp.MethodHandler) (mcp.Result, error) {
	before := b.pages.Load()
	res, err := next(ctx, methodList, r)
	list, ok := res.(*mcp.ListToolsResult)
	if !ok || err != nil || before != b.pages.Load() || before.of != b.catalog.Catalog() {
		return res, err
	}
	cursor := ""
	if r.Params != nil {
		cursor = r.Params.Cursor
	}
	before.learn(cursor, list)
	return res, nil
}

// serveCall answers a tools/call. The SDK finds the tool and encodes what is
// ours; what a peer answered takes the place of the SDK's result.
func (b *Bridge) serveCall(ctx context.Context, r *mcp.CallToolRequest, next mcp.MethodHandler) (mcp.Result, error) {
	began := time.Now()
	if _, listed := b.listedTraits(r.Params.Name); !listed {
		b.settle(ctx)
	} else if b.pages.Load().of != b.catalog.Catalog() {
		b.follow() // the SDK may not have it yet
	}
	var way called
	res, err := next(context.WithValue(ctx, calledKey{}, &way), methodCall, r)
	switch {
	case err != nil && !way.here:
		f := fault.Wrap(fault.UnsupportedTool, nil, "%v", err)
		id, from, how := callid.New(), originOf(r), outcome{code: string(f.Code), fault: f}
		ctx, ended := b.observe(ctx, id, supervisor.Call{Tool: r.Params.Name, Args: r.Params.Arguments}, &from)
		took := time.Since(began)
		ended(how.end(false, took))
		b.record(ctx, &call{id, r.Params.Name, len(r.Params.Arguments), from, trace.From(ctx), took, how})
		return nil, err
	case err == nil && way.raw != nil:
		return b.standIns.forLarge(ctx, way.raw), nil
	}
	return res, err
}

// called is how far a call has come, and what of its answer the SDK is not to see.
type called struct {
	here bool
	raw  *rawResult
}

// calledKey is the key of a *called.
type calledKey struct{}

// callTool answers a tools/call of a tool that the SDK has found.
func (b *Bridge) callTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	way, ok := ctx.Value(calledKey{}).(*called)
	if !ok {
		panic("a call that did not come by serveCall")
	}
	way.here = true
	from := originOf(req)
	request := ctx // ends when the SDK has written the answer
	ctx, letGo := b.room.Hold(ctx, from.line())
	defer func() { context.AfterFunc(request, letGo) }()
	if size := int64(len(req.Params.Arguments)); size > smallRequest && from.session != "" && from.transport == StreamableHTTP {
		// The client may leave, and its POST's share with it, before the call is over.
		b.requests.Add(from.line(), size)
		defer b.requests.Give(from.line(), size)
	}
	if b.catalog.Catalog().Talks[req.Params.Name] {
		b.asksLevel(ctx, req)
	}
	who := b.newCaller(ctx, req, req.Session)
	defer who.end()
	of := asking{who.id, methodCall, req.Params.Name, req.Params.Arguments}
	input, err := b.inputIn(req, of)
	if err != nil {
		return nil, err
	}
	asked := supervisor.Call{Tool: req.Params.Name, Args: req.Params.Arguments, Meta: b.metaOf(req.Params), Caller: from.caller, Input: input}
	if asked.Input.State != nil && !b.catalog.Catalog().Talks[asked.Tool] {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: asked.Tool + " has given no requestState; call again without it"}
	}
	res, err := b.converse(ctx, req, who, of, func(ctx context.Context, client peer.Client) (mcp.Result, error) {
		asked.Client = client
		a, made, rpcErr := b.answerCall(ctx, asked, from)
		b.record(ctx, made)
		if missing := who.missing(); missing != nil && who.newest && (rpcErr != nil || a.failed()) {
			return nil, missing
		}
		switch {
		case rpcErr != nil:
			return nil, rpcErr
		case a.passed != nil:
			a.passed.sign(b.states, of)
			return &rawResult{json: a.passed.parts(b.selfIn(req))}, nil
		case payload(a.result) <= turns.Little:
			return a.result, nil
		}
		raw, err := b.encoded(a, isNewest(req))
		return &rawResult{json: raw}, err
	})
	if err != nil {
		return nil, err
	}
	if typed, ok := res.(*mcp.CallToolResult); ok {
		return typed, nil
	}
	way.raw, _ = res.(*rawResult)
	return &mcp.CallToolResult{}, nil
}

// metaOf is what of a request's _meta is for the peer.
func (b *Bridge) metaOf(params mcp.Params) json.RawMessage {
	var meta json.RawMessage
	rawjson.Members(b.carrier.paramsOf(params), func(key string, value json.RawMessage) bool {
		if key == "_meta" {
			meta = value
		}
		return true
	})
	return ownMetaOf(meta)
}

// selfIn is what the server says of itself in the answer of a request: nothing
// but in the stateless era.
func (b *Bridge) selfIn(r mcp.Request) []byte {
	if !isNewest(r) {
		return nil
	}
	return b.selfJSON
}

// isNewest reports whether a request is of the stateless era.
func isNewest(r mcp.Request) bool {
	version, _ := r.GetParams().GetMeta()[mcp.MetaKeyProtocolVersion].(string)
	return version >= firstStateless
}
