package mcpbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// outcome is what the log tells of how a call ended.
type outcome struct {
	ok       bool
	size     int    // of the answer's payload, in bytes
	code     string // why it is not ok
	fault    *fault.Error
	attempts int // that were made
}

// end is the same for who observes calls.
func (o outcome) end(result bool, took time.Duration) CallEnd {
	return CallEnd{OK: o.ok, Code: o.code, IsError: result && !o.ok, Fault: o.fault, Attempts: o.attempts, ResponseBytes: o.size, Took: took}
}

// answerCall answers one call. What it returns beside an error is nothing. The
// caller has record write the call's line in the log, when the answer is on
// its way or before. It completes asked.
func (b *Bridge) answerCall(ctx context.Context, asked *peer.Call, from *client.Origin) (a results.Answer, c *call, rpcErr *jsonrpc.Error) {
	began := time.Now()
	c = &call{id: callid.New(), tool: asked.Tool, size: len(asked.Args), from: *from}
	asked.Task = client.TaskOf(asked.Meta, &c.from)
	asked.Owner = from.Owner()
	ctx, ended := b.observe(ctx, c.id, asked, &c.from)
	c.trace = trace.From(ctx)
	got, err := b.ask(callid.With(ctx, c.id), asked)
	a, c.how, rpcErr = b.answerTo(got, err, c)
	c.how.attempts = max(1, got.Attempts)
	c.took = time.Since(began)
	ended(c.how.end(rpcErr == nil, c.took))
	return a, c, rpcErr
}

// answerTo makes what a client gets of what the catalog gave.
func (b *Bridge) answerTo(got supervisor.Answer, err error, c *call) (results.Answer, outcome, *jsonrpc.Error) {
	known, _ := b.listedTraits(c.tool)
	if got.Raw != nil && err == nil {
		p, ok := results.Look(rawjson.Compact(got.Raw), true)
		p.Tell(got.Attempts)
		switch {
		case !ok:
			err = fault.New(fault.ExecutionFailed, "%s answered with something that is no result", c.tool)
		case p.Requires && int64(len(p.Raw)) > b.inline():
			err = fault.New(fault.ExecutionFailed, "%s requires input of over max_inline (%d bytes)", c.tool, b.inline())
		case c.from.Whole || int64(len(p.Raw)) <= b.inline():
			return results.Answer{Passed: &p}, outcome{ok: !p.Failed, size: len(p.Raw), code: p.Code}, nil
		default:
			cut := results.NewCutter(b.large.store, b.inline(), c.id, c.from.Owner())
			res := cut.Passed(&p, known.structured)
			return results.Answer{Result: res}, outcome{ok: !res.IsError, size: results.Payload(res), code: cmp.Or(p.Code, string(fault.ExecutionFailed))}, nil
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
		cut := results.NewCutter(b.large.store, b.inline(), c.id, c.from.Owner())
		res = cut.Bound(res, known.structured)
	}
	how := outcome{ok: !res.IsError, size: results.Payload(res), fault: f}
	if f != nil {
		how.code = string(f.Code)
	} else if res.IsError {
		how.code = fmt.Sprint(res.Meta[results.MetaToolCode])
	}
	return results.Answer{Result: res}, how, nil
}

// ask calls the catalog. A provider that panics has failed its call, no more.
func (b *Bridge) ask(ctx context.Context, call *peer.Call) (got supervisor.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("panic in a call", "tool", call.Tool, "call_id", callid.From(ctx), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			got, err = supervisor.Answer{}, fault.New(fault.ExecutionFailed, "%s failed inside Orla; its log has the details under call_id %s", call.Tool, callid.From(ctx))
		}
	}()
	return b.catalog.Call(ctx, *call)
}

// call is what the log tells of a call.
type call struct {
	id, tool string
	size     int // of the arguments, in bytes
	from     client.Origin
	trace    trace.Context
	took     time.Duration
	how      outcome
}

// record writes the one line that a call leaves in the log (SPEC I2). Of nil,
// which is none, it writes nothing.
func (b *Bridge) record(ctx context.Context, c *call) {
	to := b.log.Handler()
	if c == nil || !to.Enabled(ctx, slog.LevelInfo) {
		return
	}
	how := &c.how
	attrs := []slog.Attr{
		slog.String("tool", wire.BriefName(c.tool)),
		slog.String("call_id", c.id),
		slog.Float64("duration_ms", float64(c.took.Microseconds())/1000),
		slog.Bool("ok", how.ok),
		slog.String("caller", c.from.Caller),
		slog.String("session", wire.Shortened(c.from.Session)),
		slog.Int("request_bytes", c.size),
		slog.Int("response_bytes", how.size),
	}
	if !how.ok {
		attrs = append(attrs, slog.String("code", how.code))
	}
	if how.attempts > 1 {
		attrs = append(attrs, slog.Int("attempts", how.attempts))
	}
	if !c.trace.IsZero() {
		attrs = append(attrs, slog.String("trace_id", c.trace.TraceID()))
	}
	if f := how.fault; f != nil {
		reason, cause := f.Log()
		attrs = append(attrs, slog.String("reason", wire.Brief(reason)))
		if cause != nil {
			attrs = append(attrs, slog.String("err", wire.Brief(cause.Error())))
		}
	}
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "call", 0) // a Logger would look for the caller's place in the code
	line.AddAttrs(attrs...)
	_ = to.Handle(ctx, line) // as a Logger does
}
