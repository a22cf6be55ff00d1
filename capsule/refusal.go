package capsule

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

// callError is a call's error as the client is to see it. An error that has a
// code of the taxonomy's kind is a fault of that code (SPEC-TOOLS 4.1). Of the
// others, what an MCP server refuses stays as it said it, and trouble of a
// capsule of the plain kind is trouble of its tool (SPEC G5).
func (c *Capsule) callError(err error) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return err
	}
	if f, ok := coded(wire); ok {
		return c.named(f)
	}
	if c.tool.Runtime.Handshake == manifest.HandshakeMCP {
		return err
	}
	code := fault.ExecutionFailed
	if wire.Code == jsonrpc.CodeInvalidParams {
		code = fault.InvalidInput
	}
	return fault.New(code, "%s: %s", c.tool.Name, wire.Message)
}

// named returns a fault with the capsule's name before its reasons.
func (c *Capsule) named(f *fault.Error) *fault.Error {
	named := *f
	named.Reason = c.tool.Name + ": " + cut(f.Reason, maxReason)
	if f.Logged != "" {
		named.Logged = c.tool.Name + ": " + cut(f.Logged, maxReason)
	}
	return &named
}

// refusedBy is the code of why a capsule does not start, where that says more than
// that it does not: who runs Orla has to mend something. "" for anything else.
func refusedBy(cause error) fault.Code {
	f := faultIn(cause)
	if f == nil {
		return ""
	}
	switch f.Code {
	case fault.AuthInvalid, fault.AuthForbidden, fault.SecretResolutionFailed, fault.RuntimePolicyInvalid, fault.IsolationUnavailable, fault.UnsupportedTool:
		return f.Code
	default:
		return ""
	}
}

// faultIn is the fault that a cause is, that its transport failed with, or that an answer in
// its chain has the code of; nil if there is none.
func faultIn(cause error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](cause); ok {
		return f
	}
	if failed, ok := errors.AsType[*rpc.TransportError](cause); ok {
		return failed.Fault
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](cause); ok {
		f, _ := coded(wire)
		return f
	}
	return nil
}

// unauthorized is why a remote server does not take Orla's credentials, which is not
// a crash; nil if that is not the cause.
func (c *Capsule) unauthorized(cause error) *fault.Error {
	if f := faultIn(cause); c.far() && f != nil && f.Code == fault.AuthInvalid {
		return f
	}
	return nil
}

const (
	maxReason     = 4 << 10             // bytes
	maxRetryAfter = 30 * 24 * time.Hour // what is longer is for ever
)

// coded is the fault that a JSON-RPC error is by what its data says: tool_code,
// and perhaps tool_reason, retryable and retry_after_ms.
func coded(wire *jsonrpc.Error) (*fault.Error, bool) {
	var said struct {
		Code       string  `json:"tool_code"`
		Reason     string  `json:"tool_reason"`
		Retryable  *bool   `json:"retryable"`
		RetryAfter float64 `json:"retry_after_ms"`
	}
	if json.Unmarshal(wire.Data, &said) != nil {
		return nil, false //nolint:nilerr // it says something else
	}
	code, ok := fault.Parse(said.Code)
	if !ok {
		return nil, false
	}
	f := fault.New(code, "%s", cmp.Or(said.Reason, wire.Message, "it gave no reason"))
	f.Reason = cut(f.Reason, maxReason)
	f.Retry = said.Retryable
	f.Logged = "it gave this tool_code" // its reason may quote arguments (SPEC I2)
	f.RetryAfter = time.Duration(max(0, min(said.RetryAfter, maxRetryAfter.Seconds()*1000)) * float64(time.Millisecond))
	return f, true
}

// cut returns a text, or as much of a long one's beginning as most bytes have room for.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// brief bounds the text of an error, which may quote what a capsule has said (SPEC S2).
func brief(err error) error {
	if err == nil || len(err.Error()) <= maxReason {
		return err
	}
	return &briefError{err}
}

type briefError struct{ err error }

func (e *briefError) Error() string { return cut(e.err.Error(), maxReason) }
func (e *briefError) Unwrap() error { return e.err }
