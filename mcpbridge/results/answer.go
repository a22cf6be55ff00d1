package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/supervisor"
)

// Keys of a failed result's _meta (SPEC G5, SPEC-TOOLS §4).
const (
	MetaToolCode   = "tool_code"
	MetaToolReason = "tool_reason"
	MetaRetryable  = "retryable"
	// MetaRetryAfter is the earliest time to try again, if a service has given one.
	MetaRetryAfter = "retry_after_ms"
	// MetaAttempts is how many attempts were made, if there was more than one.
	MetaAttempts = "attempts"
)

// Answer is what a client gets for a call: a result that Orla encodes, or a peer's unchanged.
type Answer struct {
	Result *mcp.CallToolResult // nil if Passed is not
	Passed *Passed
}

// Failed reports whether the result has isError.
func (a Answer) Failed() bool {
	if a.Passed != nil {
		return a.Passed.Failed
	}
	return a.Result.IsError
}

// Outcome returns how a call ended, for peer.Answer.Ended. code is the code of one that is not ok.
func (a Answer) Outcome(ok bool, code string) string {
	switch {
	case a.Passed != nil && a.Passed.Requires:
		return "input_required"
	case ok:
		return "ok"
	}
	return code
}

// Weight returns about how many bytes there are to work on in an answer of a provider.
func Weight(got peer.Answer) int { return len(got.Raw) + weight(got.Result) }

// Weight is the same for what a client gets.
func (a Answer) Weight() int {
	if a.Passed != nil {
		return len(a.Passed.Raw)
	}
	return weight(a.Result)
}

// weight is Payload without the rare blocks that it encodes, unless they have a Weight. res may have blocks that cannot be encoded.
func weight(res *mcp.CallToolResult) int {
	if res == nil {
		return 0
	}
	raw, _ := res.StructuredContent.(json.RawMessage)
	size := len(raw)
	for _, block := range res.Content {
		if t, ok := block.(*mcp.TextContent); ok && t != nil {
			size += len(t.Text)
		} else if i, ok := block.(*mcp.ImageContent); ok && i != nil {
			size += len(i.Data)
		} else if a, ok := block.(*mcp.AudioContent); ok && a != nil {
			size += len(a.Data)
		} else if e, ok := block.(*mcp.EmbeddedResource); ok && e != nil && e.Resource != nil {
			size += len(e.Resource.Text) + len(e.Resource.Blob)
		} else if w, ok := block.(interface{ Weight() int }); ok { // a provider's own block
			size += w.Weight()
		}
	}
	return size
}

// Of turns the answer and the error of a provider into a result or a JSON-RPC error, one of
// which is nil. A failure of a tool is a result with isError, a text that a model can act on,
// and the error code in _meta. An unknown tool, and a JSON-RPC error of a peer, is a JSON-RPC
// error (SPEC G5). The provider's result is not modified. A peer's result that cannot be
// decoded becomes text.
func Of(got peer.Answer, err error) (*mcp.CallToolResult, *jsonrpc.Error) {
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
			return Of(peer.Answer{}, fault.New(fault.ExecutionFailed, "the answer is not a result"))
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
	// Copies, since both may belong to the provider, and are appended to below and by the SDK.
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
	case answer.IsError: // the tool reports a failure; it may have given a code too
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

// Refusal returns the JSON-RPC error of a peer, if err is one. If it is over maxRefusal, only
// the beginning of its text is kept.
func Refusal(err error) (*jsonrpc.Error, bool) {
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return nil, false
	}
	given, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return nil, false
	}
	refused := &jsonrpc.Error{Code: given.Code, Message: given.Message, Data: given.Data}
	if refused.Code == 0 { // the SDK takes 0 for no error
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

// ownMeta copies a result's _meta without the keys that the protocol reserves for the client and
// the server: a tool behind Orla is neither.
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
