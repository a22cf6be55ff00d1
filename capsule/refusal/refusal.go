// Package refusal reads why a capsule, or a server, has refused something.
package refusal

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/observe/brief"
)

// By returns the code of a failed start if the operator has to fix something;
// else "".
func By(cause error) fault.Code {
	f := In(cause)
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

// In returns the fault in the chain of an error: a fault.Error, that of a
// rpc.TransportError, or that of a JSON-RPC error with one of Orla's error codes; nil if
// there is none.
func In(cause error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](cause); ok {
		return f
	}
	if failed, ok := errors.AsType[*rpc.TransportError](cause); ok {
		return failed.Fault
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](cause); ok {
		f, _ := Coded(wire)
		return f
	}
	return nil
}

const (
	// MaxReason bounds, in bytes, what is passed on of a reason.
	MaxReason     = 4 << 10
	maxRetryAfter = 30 * 24 * time.Hour // longer times are cut to this
)

// Coded returns the fault that the data of a JSON-RPC error describes: by tool_code, and
// optionally tool_reason, retryable and retry_after_ms.
func Coded(wire *jsonrpc.Error) (*fault.Error, bool) {
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
	f.Reason = brief.Cut(f.Reason, MaxReason)
	f.Retry = said.Retryable
	f.Logged = "it gave this tool_code" // its reason may quote arguments (SPEC I2)
	f.RetryAfter = time.Duration(max(0, min(said.RetryAfter, maxRetryAfter.Seconds()*1000)) * float64(time.Millisecond))
	return f, true
}

// Shortened bounds the text of an error, which may quote a capsule (SPEC S2).
func Shortened(err error) error {
	if err == nil || len(err.Error()) <= MaxReason {
		return err
	}
	return &briefError{err}
}

type briefError struct{ err error }

func (e *briefError) Error() string { return brief.Cut(e.err.Error(), MaxReason) }
func (e *briefError) Unwrap() error { return e.err }
