package mcpbridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/callid"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/trace"
)

// call answers a tools/call.
func (b *Bridge) call(ctx context.Context, r *request) (parts, *jsonrpc.Error) {
	name, ok := textOf(r.params.name)
	args := r.params.arguments
	if !ok || args != nil && args[0] != '{' && args[0] != 'n' {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: notShaped}
	}
	l := b.current()
	if _, there := l.tools.find(name); !there {
		l = b.settle(ctx)
		if _, there = l.tools.find(name); !there {
			return nil, b.unknownTool(ctx, r, name)
		}
	}
	asked := peer.Call{Tool: name, Args: args, Meta: ownMetaOf(r.params.meta), Caller: r.from.caller}
	talks := l.of.Talks[name]
	if r.newest && (r.params.state != nil || r.params.responses != nil) {
		var refused *jsonrpc.Error
		if asked.Input, refused = b.inputIn(r, callOf(r, &asked)); refused != nil {
			return nil, refused
		}
		if asked.Input.State != nil && !talks {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: name + " has given no requestState; call again without it"}
		}
	}
	if !talks {
		return b.callWith(ctx, r, &asked, nil)
	}
	return b.callConversing(ctx, r, asked)
}

// callConversing makes a call of a tool that may speak to its client.
func (b *Bridge) callConversing(ctx context.Context, r *request, asked peer.Call) (parts, *jsonrpc.Error) {
	b.asksLevel(ctx, r)
	return b.converse(ctx, r, callOf(r, &asked), func(ctx context.Context, client peer.Client) (parts, *jsonrpc.Error) {
		return b.callWith(ctx, r, &asked, client)
	})
}

// callOf is what a call asks for, and for whom.
func callOf(r *request, asked *peer.Call) asking {
	return asking{r.Session(), methodCall, asked.Tool, asked.Args}
}

// callWith makes a call for a client; nil if it cannot be spoken to meanwhile.
func (b *Bridge) callWith(ctx context.Context, r *request, asked *peer.Call, client peer.Client) (parts, *jsonrpc.Error) {
	asked.Client = client
	a, made, refused := b.answerCall(ctx, *asked, r.from)
	if _, later := client.(*conversation); later { // the request may have been answered with questions
		b.record(ctx, made)
	} else {
		r.made = made
	}
	if refused != nil || a.failed() {
		refused = cmp.Or(r.missing(), refused)
	}
	if refused != nil {
		return nil, refused
	}
	if a.passed != nil && a.passed.state != nil {
		a.passed.sign(b.states, callOf(r, asked))
	}
	result, err := b.encoded(a, r.newest)
	if err != nil { // bound has seen to it that it can be encoded
		b.log.Error("encode an answer", "tool", asked.Tool, "err", err)
		return nil, internalError()
	}
	return result, nil
}

// unknownTool refuses a call of no tool, which leaves a line in the log as any other.
func (b *Bridge) unknownTool(ctx context.Context, r *request, name string) *jsonrpc.Error {
	began := time.Now()
	f := fault.New(fault.UnsupportedTool, "unknown tool %q", name)
	id, how := callid.New(), outcome{code: string(fault.UnsupportedTool), fault: f}
	ctx, ended := b.observe(ctx, id, peer.Call{Tool: name, Args: r.params.arguments}, &r.from)
	took := time.Since(began)
	ended(how.end(false, took))
	r.made = &call{id, name, len(r.params.arguments), r.from, trace.From(ctx), took, how}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", name)}
}

// encoded is an answer as a result, in the stateless era or another.
func (b *Bridge) encoded(a answer, newest bool) (parts, error) {
	var self json.RawMessage
	if newest {
		self = b.selfJSON
	}
	if a.passed != nil {
		return a.passed.parts(self), nil
	}
	if result, ok := encode(a.result, self); ok {
		return parts{result}, nil
	}
	if !newest {
		result, err := a.result.MarshalJSON()
		return parts{result}, err
	}
	if a.result.Meta == nil {
		a.result.Meta = mcp.Meta{}
	}
	a.result.Meta[mcp.MetaKeyServerInfo] = b.self
	result, err := a.result.MarshalJSON()
	if err != nil {
		return nil, err
	}
	// What the stateless era has in every result; the SDK keeps the field to itself.
	return parts{bytes.TrimSuffix(result, closing), []byte(`,"resultType":"complete"}`)}, nil
}

// listedTraits returns the traits of a listed tool.
func (b *Bridge) listedTraits(name string) (traits, bool) {
	tool, ok := b.listed.Load().tools.find(name)
	return tool.traits, ok
}
