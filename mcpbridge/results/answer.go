package results

import (
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/supervisor"
)

// Keys of a failed result's _meta (SPEC G5, SPEC-TOOLS §4).
const (
	MetaToolCode   = "tool_code"
	MetaToolReason = "tool_reason"
	MetaRetryable  = "retryable"
	// MetaRetryAfter is when trying again can help at the earliest, if a
	// service has said so.
	MetaRetryAfter = "retry_after_ms"
	// MetaAttempts is how many attempts were made, if there was more than one.
	MetaAttempts = "attempts"
)

// Answer is what a client gets of a call: a result of ours, or a peer's as it is.
type Answer struct {
	Result *mcp.CallToolResult // nil if Passed is not
	Passed *Passed
}

// Failed reports whether it says of itself that it is none.
func (a Answer) Failed() bool {
	if a.Passed != nil {
		return a.Passed.Failed
	}
	return a.Result.IsError
}

// Of makes what a client sees of a provider's answer and error: trouble of
// a tool is a result with isError, text a model can act on and the code in
// _meta; an unknown tool, and what a peer refuses by an error of the protocol,
// is a JSON-RPC error (SPEC G5). The second value is non-nil exactly when the
// first is nil. The provider's result is not modified. What a peer answered is
// decoded as far as it can be, and is text where it cannot.
func Of(got supervisor.Answer, err error) (*mcp.CallToolResult, *jsonrpc.Error) {
	if errors.Is(err, supervisor.ErrUnknownTool) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fault.From(err).Reason}
	}
	if refused, ok := Refusal(err); ok {
		return nil, refused
	}
	if got.Raw != nil && err == nil {
		p, ok := Look(got.Raw, true)
		p.Tell(got.Attempts)
		if !ok {
			return Of(supervisor.Answer{}, fault.New(fault.ExecutionFailed, "the answer is no result"))
		}
		res, err := p.decoded()
		if err != nil {
			res.Content = []mcp.Content{&mcp.TextContent{Text: string(p.Raw)}}
		}
		return res, nil
	}
	answer := &mcp.CallToolResult{}
	if got.Result != nil {
		*answer = *got.Result
	}
	// Copies: the SDK adds to the map, and the slice may have room that is the provider's.
	answer.Content = append(make([]mcp.Content, 0, len(answer.Content)+1), answer.Content...)
	answer.Meta = ownMeta(answer.Meta)
	switch f := fault.From(err); {
	case f != nil:
		answer.IsError = true
		answer.Content = append(answer.Content, &mcp.TextContent{Text: f.Reason})
		setDefault(answer, MetaToolCode, string(f.Code))
		setDefault(answer, MetaToolReason, f.Reason)
		setDefault(answer, MetaRetryable, f.Retryable())
		if f.RetryAfter > 0 {
			setDefault(answer, MetaRetryAfter, f.RetryAfter.Milliseconds())
		}
	case answer.IsError: // the tool's own word; it may have given a code too
		setDefault(answer, MetaToolCode, string(fault.ExecutionFailed))
		setDefault(answer, MetaRetryable, false)
	}
	if answer.IsError && got.Attempts > 1 {
		answer.Meta[MetaAttempts] = got.Attempts
	}
	return answer, nil
}

// maxRefusal bounds a peer's error in bytes, and briefRefusal the text of one over it.
const (
	maxRefusal   = 256 << 10
	briefRefusal = 4 << 10
)

// Refusal returns the JSON-RPC error that a peer gave, if err is one. Of one over
// maxRefusal it is the beginning of the text.
func Refusal(err error) (*jsonrpc.Error, bool) {
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return nil, false
	}
	given, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return nil, false
	}
	refused := &jsonrpc.Error{Code: given.Code, Message: given.Message, Data: given.Data}
	if refused.Code == 0 { // what the SDK takes for none
		refused.Code = jsonrpc.CodeInternalError
	}
	switch size := len(refused.Message) + len(refused.Data); {
	case size > maxRefusal:
		brief := refused.Message[:runeStart(refused.Message, min(briefRefusal, len(refused.Message)))]
		refused.Message, refused.Data = fmt.Sprintf("%s [cut: the error has %d bytes]", brief, size), nil
	case !rawjson.Valid(refused.Data):
		refused.Data = nil
	}
	return refused, true
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
