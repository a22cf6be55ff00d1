package capsule

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// callError returns the error of a call as the client gets it. An error with one of Orla's
// error codes becomes a fault with that code (SPEC-TOOLS 4.1). Other errors of an MCP server
// stay as they are; those of other capsules are failures of the tool (SPEC G5).
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

// named returns a copy of a fault with the capsule's name before its reasons.
func (c *Capsule) named(f *fault.Error) *fault.Error {
	named := *f
	named.Reason = c.tool.Name + ": " + brief.Cut(f.Reason, maxReason)
	if f.Logged != "" {
		named.Logged = c.tool.Name + ": " + brief.Cut(f.Logged, maxReason)
	}
	return &named
}

// refusedBy returns the code of a failed start if the operator has to fix something;
// else "".
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

// faultIn returns the fault in the chain of an error: a fault.Error, that of a
// rpc.TransportError, or that of a JSON-RPC error with one of Orla's error codes; nil if
// there is none.
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

// unauthorized returns the fault of a remote server that refused Orla's credentials, which is
// not a crash; nil for any other cause.
func (c *Capsule) unauthorized(cause error) *fault.Error {
	if f := faultIn(cause); c.far() && f != nil && f.Code == fault.AuthInvalid {
		return f
	}
	return nil
}

const (
	maxReason     = 4 << 10             // bytes
	maxRetryAfter = 30 * 24 * time.Hour // longer times are cut to this
)

// coded returns the fault that the data of a JSON-RPC error describes: by tool_code, and
// optionally tool_reason, retryable and retry_after_ms.
func coded(wire *jsonrpc.Error) (*fault.Error, bool) {
	var said struct {
		Code       string  `json:"tool_code"`
		Reason     string  `json:"tool_reason"`
		Retryable  *bool   `json:"retryable"`
		RetryAfter float64 `json:"retry_after_ms"`
	}
	if json.Unmarshal(wire.Data, &said) != nil {
		return nil, false //nolint:nilerr // the data describes something else
	}
	code, ok := fault.Parse(said.Code)
	if !ok {
		return nil, false
	}
	f := fault.New(code, "%s", cmp.Or(said.Reason, wire.Message, "it gave no reason"))
	f.Reason = brief.Cut(f.Reason, maxReason)
	f.Retry = said.Retryable
	f.Logged = "it gave this tool_code" // its reason may quote arguments (SPEC I2)
	f.RetryAfter = time.Duration(max(0, min(said.RetryAfter, maxRetryAfter.Seconds()*1000)) * float64(time.Millisecond))
	return f, true
}

// shortened bounds the text of an error, which may quote a capsule (SPEC S2).
func shortened(err error) error {
	if err == nil || len(err.Error()) <= maxReason {
		return err
	}
	return &briefError{err}
}

type briefError struct{ err error }

func (e *briefError) Error() string { return brief.Cut(e.err.Error(), maxReason) }
func (e *briefError) Unwrap() error { return e.err }
