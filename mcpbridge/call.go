package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/callid"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/supervisor"
)

// Keys of a failed result's _meta (SPEC G5, SPEC-TOOLS §4).
const (
	MetaToolCode   = "tool_code"
	MetaToolReason = "tool_reason"
	MetaRetryable  = "retryable"
)

// origin is where a call came from.
type origin struct {
	caller  string // the authenticated subject, else the transport
	session string // its id; "" where there is none
}

// callTool answers one tools/call that came through the SDK.
func (b *Bridge) callTool(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer, rpcErr := b.answerCall(ctx, req.Params.Name, req.Params.Arguments, originOf(req))
	if rpcErr != nil {
		return nil, rpcErr // recorded writes its line, with those that the SDK refuses
	}
	return answer, nil
}

// answerCall answers one call and writes its line in the log, unless it ends
// in a JSON-RPC error. One of its values is nil.
func (b *Bridge) answerCall(ctx context.Context, tool string, args json.RawMessage, from origin) (*mcp.CallToolResult, *jsonrpc.Error) {
	began := time.Now()
	id := callid.New()
	res, err := b.ask(callid.With(ctx, id), supervisor.Call{Tool: tool, Args: args, Caller: from.caller})
	answer, rpcErr := Answer(res, err)
	if rpcErr != nil {
		return nil, rpcErr
	}
	known, _ := b.listedTraits(tool)
	answer = b.bound(answer, id, known.structured)
	b.record(ctx, call{id, tool, len(args), from}, began, answer, fault.From(err))
	return answer, nil
}

// recorded writes the log's line for calls that ended in a JSON-RPC error: an
// unknown tool's never reach callTool.
func (b *Bridge) recorded(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		began := time.Now()
		res, err := next(ctx, method, req)
		if r, ok := req.(*mcp.CallToolRequest); ok && err != nil {
			b.record(ctx, call{callid.New(), r.Params.Name, len(r.Params.Arguments), originOf(r)}, began, nil, fault.Wrap(fault.UnsupportedTool, nil, "%v", err))
		}
		return res, err
	}
}

// ask calls the catalog. A provider that panics has failed its call, no more.
func (b *Bridge) ask(ctx context.Context, call supervisor.Call) (res *mcp.CallToolResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("panic in a call", "tool", call.Tool, "call_id", callid.From(ctx), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			res, err = nil, fault.New(fault.ExecutionFailed, "%s failed inside Orla; its log has the details under call_id %s", call.Tool, callid.From(ctx))
		}
	}()
	answer, err := b.catalog.Call(ctx, call)
	return answer.Result, err
}

// Answer makes what a client sees of a provider's result and error: trouble of
// a tool is a result with isError, text a model can act on and the code in
// _meta; an unknown tool is a JSON-RPC error (SPEC G5). The second value is
// non-nil exactly when the first is nil. The provider's result is not modified.
func Answer(res *mcp.CallToolResult, err error) (*mcp.CallToolResult, *jsonrpc.Error) {
	if errors.Is(err, supervisor.ErrUnknownTool) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fault.From(err).Reason}
	}
	answer := &mcp.CallToolResult{}
	if res != nil {
		*answer = *res
	}
	// Copies: the SDK adds to the map, and the slice may have room that is the provider's.
	answer.Content = append(make([]mcp.Content, 0, len(answer.Content)+1), answer.Content...)
	answer.Meta = ownMeta(answer.Meta)
	f := fault.From(err)
	if f == nil {
		if answer.IsError { // the tool's own word; it may have given a code too
			setDefault(answer, MetaToolCode, string(fault.ExecutionFailed))
			setDefault(answer, MetaRetryable, false)
		}
		return answer, nil
	}
	answer.IsError = true
	answer.Content = append(answer.Content, &mcp.TextContent{Text: f.Reason})
	setDefault(answer, MetaToolCode, string(f.Code))
	setDefault(answer, MetaToolReason, f.Reason)
	setDefault(answer, MetaRetryable, f.Retryable())
	return answer, nil
}

// ownMeta copies a result's _meta without what the protocol keeps for the
// parties themselves: a tool behind Orla is none.
func ownMeta(meta mcp.Meta) mcp.Meta {
	var own mcp.Meta
	for key, value := range meta {
		if strings.HasPrefix(key, "io.modelcontextprotocol/") {
			continue
		}
		if own == nil {
			own = make(mcp.Meta, len(meta))
		}
		own[key] = value
	}
	return own
}

func setDefault(res *mcp.CallToolResult, key string, value any) {
	if res.Meta == nil {
		res.Meta = mcp.Meta{}
	}
	if _, has := res.Meta[key]; !has {
		res.Meta[key] = value
	}
}

// originOf tells where a call came from. The caller is the authenticated
// subject, else the transport (SPEC-TOOLS 8.1).
func originOf(req *mcp.CallToolRequest) origin {
	from := callerOf(req.Extra)
	from.session = req.Session.ID()
	return from
}

func callerOf(extra *mcp.RequestExtra) origin {
	switch {
	case extra == nil || extra.Header == nil:
		return origin{caller: "stdio"}
	case extra.TokenInfo != nil:
		return origin{caller: extra.TokenInfo.UserID}
	}
	return origin{caller: "anonymous"}
}

// call is what the log tells of a call beside its outcome.
type call struct {
	id, tool string
	size     int // of the arguments, in bytes
	from     origin
}

// record writes the one line that a call leaves in the log (SPEC I2).
func (b *Bridge) record(ctx context.Context, c call, began time.Time, answer *mcp.CallToolResult, f *fault.Error) {
	attrs := []slog.Attr{
		slog.String("tool", c.tool),
		slog.String("call_id", c.id),
		slog.Float64("duration_ms", float64(time.Since(began).Microseconds())/1000),
		slog.Bool("ok", answer != nil && !answer.IsError),
		slog.String("caller", c.from.caller),
		slog.String("session", shortened(c.from.session)),
		slog.Int("request_bytes", c.size),
		slog.Int("response_bytes", payload(answer)),
	}
	if f != nil {
		attrs = append(attrs, slog.String("code", string(f.Code)), slog.String("reason", f.Reason))
		if f.Err != nil {
			attrs = append(attrs, slog.String("err", f.Err.Error()))
		}
	} else if answer != nil && answer.IsError {
		attrs = append(attrs, slog.Any("code", answer.Meta[MetaToolCode]))
	}
	b.log.LogAttrs(ctx, slog.LevelInfo, "call", attrs...)
}

// shortened gives enough of a session's id to tell sessions apart in a log:
// the whole of it would let a reader of the log take the session over.
func shortened(id string) string {
	const enough = 8
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
