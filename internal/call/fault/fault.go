// Package fault has the error codes that a client can see, and the error type that carries them. Code
// must decide by codes, never by the text of a message.
//
// The codes are those of the Tool resource's taxonomy (SPEC-TOOLS §4). They are
// strings on the wire and are never renamed.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code names one kind of error. Whether trying again can help is a property of the code, unless a tool
// says otherwise about its own error.
type Code string

// The taxonomy of SPEC-TOOLS §4.
const (
	InvalidInput           Code = "invalid_input"
	UnsupportedTool        Code = "unsupported_tool"
	RuntimePolicyInvalid   Code = "runtime_policy_invalid"
	IsolationUnavailable   Code = "isolation_unavailable"
	PermissionDenied       Code = "permission_denied"
	ApprovalPending        Code = "approval_pending"
	ApprovalDenied         Code = "approval_denied"
	ApprovalTimeout        Code = "approval_timeout"
	SecretResolutionFailed Code = "secret_resolution_failed"
	AuthInvalid            Code = "auth_invalid"
	AuthForbidden          Code = "auth_forbidden"
	RateLimited            Code = "rate_limited"
	Timeout                Code = "timeout"
	Canceled               Code = "canceled"
	NotReady               Code = "not_ready"
	Crashed                Code = "crashed"
	StartFailed            Code = "start_failed"
	ExecutionFailed        Code = "execution_failed"
)

// Codes lists every code, in the order of the taxonomy.
func Codes() []Code {
	return []Code{
		InvalidInput, UnsupportedTool, RuntimePolicyInvalid, IsolationUnavailable,
		PermissionDenied, ApprovalPending, ApprovalDenied, ApprovalTimeout,
		SecretResolutionFailed, AuthInvalid, AuthForbidden, RateLimited, Timeout,
		Canceled, NotReady, Crashed, StartFailed, ExecutionFailed,
	}
}

// Parse returns a code that a tool gave, which need not be one of Orla's (SPEC-TOOLS 4.1). It reports
// false for a text that is not a code: 1 to 64 letters, digits, '.', '_' and '-'.
func Parse(text string) (Code, bool) {
	const longest = 64
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}
	if text == "" || len(text) > longest || strings.ContainsFunc(text, odd) {
		return "", false
	}
	return Code(text), true
}

// Retryable reports whether trying again can help, as far as the code tells.
func (c Code) Retryable() bool {
	switch c {
	case RateLimited, Timeout, NotReady, Crashed, StartFailed:
		return true
	default:
		return false
	}
}

// Error is an error with a code. Its Reason is for people and models: it says what went wrong and what to
// do, without secrets and internal text.
type Error struct {
	Code   Code
	Reason string
	// Retry overrides Code.Retryable if more is known: a tool has said so, or the cause of
	// execution_failed is a status 5xx.
	Retry *bool
	// RetryAfter is how long a service asks its callers to wait before they try again; zero if
	// it has not.
	RetryAfter time.Duration
	// Unsent says that the call never reached the tool, so that trying again
	// repeats nothing.
	Unsent bool
	// Err is the cause for the log; clients never see it. May be nil.
	Err error
	// Logged stands for Reason and Err in the log where these quote what a
	// client or a tool sent (SPEC I2). If empty, they are logged.
	Logged string
}

// New returns an Error whose reason is formatted from format and args.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error of the given code that keeps err as its cause and adds
// a reason for the client. A nil err is allowed.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...), Err: err}
}

// Again returns the error, with whether trying again can help.
func (e *Error) Again(can bool) *Error {
	e.Retry = &can
	return e
}

// LoggedAs returns the error, with what stands for it in the log; see Logged.
func (e *Error) LoggedAs(text string) *Error {
	e.Logged = text
	return e
}

// Log returns the reason and the cause that may be in the log.
func (e *Error) Log() (reason string, cause error) {
	if e.Logged != "" {
		return e.Logged, nil
	}
	return e.Reason, e.Err
}

// Error gives the code, the reason and the cause.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Reason, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Reason)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the call may be tried again.
func (e *Error) Retryable() bool {
	if e.Retry != nil {
		return *e.Retry
	}
	return e.Code.Retryable()
}

// From returns the *Error in err's chain. Without one it makes one: canceled
// and timeout for the context's errors, else execution_failed with a reason
// that does not repeat err, which may hold internal text. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*Error](err); ok {
		return f
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(Timeout, err, "the call's deadline passed")
	case errors.Is(err, context.Canceled):
		return Wrap(Canceled, err, "the call was cancelled")
	}
	return Wrap(ExecutionFailed, err, "the call failed inside Orla; its log has the cause under this call's call_id")
}

// ReasonOf returns the text of an error without its error code.
func ReasonOf(err error) string {
	if f, ok := errors.AsType[*Error](err); ok {
		return f.Reason
	}
	return err.Error()
}

// Unsent returns From(err) with Unsent set. Unsent(nil) is nil.
func Unsent(err error) error {
	f := From(err)
	if f == nil {
		return nil
	}
	unsent := *f
	unsent.Unsent = true
	return &unsent
}

// Sent returns err without Unsent, for a call that may have reached the tool before err came.
func Sent(err error) error {
	if !IsUnsent(err) {
		return err
	}
	sent := *From(err)
	sent.Unsent = false
	return &sent
}

// IsUnsent reports whether an error says that the call never reached the tool.
func IsUnsent(err error) bool {
	f, ok := errors.AsType[*Error](err)
	return ok && f.Unsent
}

// CodeOf returns the code of From(err); "" for nil.
func CodeOf(err error) Code {
	if f := From(err); f != nil {
		return f.Code
	}
	return ""
}
