package mcpbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// answerCall answers one call. It fills in the Task and the Owner of asked. The caller passes
// the loggedCall to record, when the answer is on its way or before. With an error, the answer
// is empty.
func (b *Bridge) answerCall(ctx context.Context, asked *peer.Call, from *client.Origin) (a results.Answer, c *loggedCall, rpcErr *jsonrpc.Error) {
	began := time.Now()
	c = &loggedCall{id: callid.New(), tool: asked.Tool, argumentBytes: len(asked.Args), from: *from}
	asked.Task = client.TaskOf(asked.Meta, &c.from)
	asked.Owner, asked.Began = from.Owner(), began
	ctx, ended := b.observe(ctx, c.id, asked, &c.from)
	ctx = callid.With(ctx, c.id)
	c.trace = trace.From(ctx)
	got, err := b.ask(ctx, asked)
	result := string(fault.ExecutionFailed) // if what follows panics
	if got.Ended != nil {
		defer func() { got.Ended(result, c.took) }()
	}
	late := turns.AccountOf(ctx).WorkInParts(ctx, results.Weight(got), func(rest func()) { a, c.how, rpcErr = b.answerTo(got, err, c, rest) })
	if late != nil {
		a, c.how, rpcErr = b.answerTo(peer.Answer{}, late, c, nil)
	}
	result = a.Outcome(c.how.ok, c.how.code)
	c.how.attempts = max(1, got.Attempts)
	c.took = time.Since(began)
	ended(c.how.end(rpcErr == nil, c.took))
	return a, c, rpcErr
}

// answerTo turns the answer of the catalog into what the client gets, and what the log says. rest may be nil.
func (b *Bridge) answerTo(got peer.Answer, err error, c *loggedCall, rest func()) (results.Answer, outcome, *jsonrpc.Error) {
	known, _ := b.listedTraits(c.tool)
	if got.Raw != nil && err == nil {
		p, ok := results.Look(rawjson.Compact(got.Raw), true)
		p.Tell(got.Attempts)
		switch {
		case !ok:
			err = fault.New(fault.ExecutionFailed, "%s answered with something that is not a result", c.tool)
		case p.Requires && int64(len(p.Raw)) > b.inline():
			err = fault.New(fault.ExecutionFailed, "%s requires input of over max_inline (%d bytes)", c.tool, b.inline())
		case c.from.Whole || int64(len(p.Raw)) <= b.inline():
			return results.Answer{Passed: &p}, outcome{ok: !p.Failed, answerBytes: len(p.Raw), code: p.Code}, nil
		default:
			cut := b.cutter(c, rest)
			res := cut.Passed(&p, known.Structured)
			return results.Answer{Result: res}, outcome{ok: !res.IsError, answerBytes: results.Payload(res), code: cmp.Or(p.Code, string(fault.ExecutionFailed))}, nil
		}
		got.Raw = nil
	}
	res, rpcErr := results.Of(got, err)
	f := fault.From(err)
	if rpcErr != nil {
		how := outcome{code: strconv.FormatInt(rpcErr.Code, 10)}
		if errors.Is(err, supervisor.ErrUnknownTool) {
			how.code, how.fault = string(f.Code), f
		}
		return results.Answer{}, how, rpcErr
	}
	if !c.from.Whole {
		cut := b.cutter(c, rest)
		res = cut.Bound(res, known.Structured)
	}
	how := outcome{ok: !res.IsError, answerBytes: results.Payload(res), fault: f}
	if f != nil {
		how.code = string(f.Code)
	} else if res.IsError {
		how.code = wire.BriefName(fmt.Sprint(res.Meta[results.MetaToolCode]))
	}
	return results.Answer{Result: res}, how, nil
}

// cutter returns what makes the answer small enough. It keeps what is too large for the caller.
func (b *Bridge) cutter(c *loggedCall, rest func()) results.Cutter {
	by := results.Keeper{Owner: c.from.Owner(), Caller: c.from.Caller, Groups: c.from.Groups, Call: c.id}
	cut := results.NewCutter(b.large.store, b.inline(), by)
	cut.Rest = rest
	return cut
}

// ask calls the catalog. A panic of a provider fails the call, and nothing else.
func (b *Bridge) ask(ctx context.Context, call *peer.Call) (got peer.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("panic in a call", "tool", call.Tool, "call_id", callid.From(ctx), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			got, err = peer.Answer{}, fault.New(fault.ExecutionFailed, "%s failed inside Orla; its log has the details under call_id %s", call.Tool, callid.From(ctx))
		}
	}()
	return b.catalog.Call(ctx, *call)
}
