package mcpbridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/listing"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// call answers a tools/call.
func (b *Bridge) call(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	name, ok := wire.TextOf(r.Params.Name)
	args := r.Params.Arguments
	if !ok || args != nil && args[0] != '{' && args[0] != 'n' {
		return nil, b.refuseCall(ctx, r, name, fault.New(fault.InvalidInput, "%s", wire.NotShaped))
	}
	if _, there := b.listedTraits(name); !there { // a call of a listed tool does not wait for the others
		l, refused := b.settle(ctx, r)
		if refused != nil {
			return nil, refused
		}
		if _, there = l.tools.Find(name); !there && b.catalog.Catalog().Withheld(name) == nil {
			return nil, b.refuseCall(ctx, r, name, fault.New(fault.UnsupportedTool, "unknown tool %q", wire.BriefName(name)))
		}
	}
	asked := &peer.Call{Tool: name, Args: args, Meta: wire.OwnMetaOf(r.Params.Meta), Caller: r.from.Caller, Groups: r.from.Groups}
	catalog := b.catalog.Catalog()
	talks := catalog.Talks[name]
	if r.newest && (r.Params.State != nil || r.Params.Responses != nil) {
		var refused *jsonrpc.Error
		if asked.Input, refused = b.inputIn(r, callOf(r, asked)); refused != nil {
			return nil, b.refuseCall(ctx, r, name, fault.New(fault.InvalidInput, "%s", refused.Message))
		}
		if asked.Input.State != nil && !talks {
			return nil, b.refuseCall(ctx, r, name, fault.New(fault.InvalidInput, "%s has given no requestState; call again without it", wire.BriefName(name)))
		}
	}
	if !talks && !b.mayAsk(catalog, name) {
		return b.callWith(ctx, r, asked, nil)
	}
	if talks {
		b.asksLevel(ctx, r)
	}
	if !r.answersLater() {
		return b.callWith(ctx, r, asked, r)
	}
	result, refused := r.converse(ctx, callOf(r, asked), func(ctx context.Context, client peer.Client) (wire.Parts, *jsonrpc.Error) {
		return b.callWith(ctx, r, asked, client)
	})
	if refused == results.ErrUnknownState { // there is no call that it goes on with
		return nil, b.refuseCall(ctx, r, name, fault.New(fault.InvalidInput, "%s", refused.Message))
	}
	return result, refused
}

// mayAsk reports whether somebody may have to approve a call of a tool, perhaps the person at the client.
func (b *Bridge) mayAsk(c *supervisor.Catalog, name string) bool {
	set := b.opts.Rules.Rules()
	return set.Asks() && set.AsksAbout(c.Target(name))
}

// callOf returns the Asking of a call.
func callOf(r *Request, asked *peer.Call) results.Asking {
	return results.Asking{Client: r.Session(), Method: wire.MethodCall, Name: asked.Tool, Args: asked.Args}
}

// callWith makes a call for a client; nil if nothing can be sent to it before the answer.
func (b *Bridge) callWith(ctx context.Context, r *Request, asked *peer.Call, client peer.Client) (wire.Parts, *jsonrpc.Error) {
	asked.Client = client
	a, made, refused := b.answerCall(ctx, asked, &r.from)
	r.worked()
	if client != nil && client != peer.Client(r) { // a conversation: r may have been answered with questions already
		b.record(ctx, made)
	} else {
		r.made = made
	}
	if refused != nil || a.Failed() {
		refused = cmp.Or(r.missing(), refused)
	}
	if refused != nil {
		return nil, refused
	}
	if a.Passed != nil && a.Passed.State != nil {
		a.Passed.Sign(b.states, callOf(r, asked))
	}
	var result wire.Parts
	var err error
	if late := turns.AccountOf(ctx).Work(ctx, a.Weight(), func() { result, err = b.encoded(a, r.newest) }); late != nil {
		return nil, b.refused(ctx, r.Method, late)
	}
	if err != nil { // cannot be: Cutter.Bound has replaced what cannot be encoded
		b.log.Error("encode an answer", "tool", asked.Tool, "err", err)
		return nil, wire.InternalError()
	}
	return result, nil
}

// refuseCall refuses a call before it reaches a tool: of one that does not exist, or with params that no tool can have. It is logged
// like any other call.
func (b *Bridge) refuseCall(ctx context.Context, r *Request, name string, f *fault.Error) *jsonrpc.Error {
	began := time.Now()
	id, how := callid.New(), outcome{code: string(f.Code), fault: f}
	asked := peer.Call{Tool: name, Args: r.Params.Arguments, Meta: wire.OwnMetaOf(r.Params.Meta), Caller: r.from.Caller, Groups: r.from.Groups}
	asked.Task = client.TaskOf(asked.Meta, &r.from)
	ctx, ended := b.observe(callid.With(ctx, id), id, &asked, &r.from)
	if b.opts.Refused != nil {
		b.opts.Refused(ctx, asked, f)
	}
	took := time.Since(began)
	ended(how.end(false, took))
	r.made = &loggedCall{id, name, len(r.Params.Arguments), r.from, trace.From(ctx), took, how}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: f.Reason}
}

// encoded returns an answer as the JSON of a result. newest says that it is for the stateless
// era.
func (b *Bridge) encoded(a results.Answer, newest bool) (wire.Parts, error) {
	var self json.RawMessage
	if newest {
		self = b.selfJSON
	}
	if a.Passed != nil {
		return a.Passed.Parts(self), nil
	}
	if result, ok := results.Encode(a.Result, self); ok {
		return wire.Parts{result}, nil
	}
	if !newest {
		result, err := a.Result.MarshalJSON()
		return wire.Parts{result}, err
	}
	if a.Result.Meta == nil {
		a.Result.Meta = mcp.Meta{}
	}
	a.Result.Meta[mcp.MetaKeyServerInfo] = b.self
	result, err := a.Result.MarshalJSON()
	if err != nil {
		return nil, err
	}
	// The stateless era requires this member in every result; the SDK does not export it.
	return wire.Parts{bytes.TrimSuffix(result, wire.Closing), []byte(`,"resultType":"complete"}`)}, nil
}

// listedTraits returns the traits of a listed tool.
func (b *Bridge) listedTraits(name string) (listing.Traits, bool) {
	tool, ok := b.lists.made.Load().tools.Find(name)
	return tool.Traits, ok
}

// Call answers a call that does not come by MCP, such as one of the control API, with a
// CallToolResult as JSON or with a JSON-RPC error. It is logged and observed like any other
// call. The answer is never cut: MCP clients drop the connection if an answer is too large,
// and this caller does not. In a context of turns.Queue.In, the call uses the share of its owner, and the answer takes room until the
// context ends that In was given: a limit of the call's time is over before the answer is written.
func (b *Bridge) Call(ctx context.Context, asked peer.Call) (json.RawMessage, *jsonrpc.Error) {
	owner := turns.OwnerIn(ctx)
	if owner != (turns.Owner{}) {
		counted, release := b.room.Open(ctx, owner)
		turns.AfterIn(ctx, release)
		ctx = counted
	}
	answer, made, rpcErr := b.answerCall(ctx, &asked, &client.Origin{Caller: asked.Caller, Groups: asked.Groups, Transport: client.Control, Whole: true, As: owner})
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
