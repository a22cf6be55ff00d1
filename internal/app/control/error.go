package control

import (
	"errors"
	"net/http"

	"github.com/orla-project/orla/internal/call/fault"
)

// The codes that an Error may have beside those of package fault. They are
// strings on the wire and are never renamed.
const (
	CodeBadRequest    = "bad_request"           // the request makes no sense
	CodeNotFound      = "not_found"             // there is no such path
	CodeMethod        = "method_not_allowed"    // the path takes another method
	CodeTooLarge      = "too_large"             // the request's body is
	CodeConfiguration = "invalid_configuration" // it has faults, one a line of the message
	CodeReload        = "reload_failed"         // the configuration holds, and cannot be put in force
	CodeForbidden     = "forbidden"             // who asks may not do that
	CodeDecided       = "already_decided"       // somebody was faster, or the record has expired
	CodeDigest        = "digest_mismatch"       // the record is not the one that was read
	CodeRefused       = "refused"               // it cannot be done; the message says why
	CodeStopping      = "stopping"              // Orla is
	CodeInternal      = "internal"
)

// Error is how every request ends that is not answered.
type Error struct {
	Code    string `json:"code" jsonschema:"A code for programs: one of docs/errors, or one of bad_request, not_found, method_not_allowed, too_large, invalid_configuration, reload_failed, forbidden, already_decided, digest_mismatch, refused, stopping, internal."`
	Message string `json:"message" jsonschema:"What is wrong, for people. Each error of a configuration is one line."`
	Hint    string `json:"hint,omitempty" jsonschema:"What may help to fix it."`
}

func (e *Error) Error() string { return e.Message }

// status is the HTTP status of an error with this code.
func (e *Error) status() int {
	switch e.Code {
	case CodeBadRequest, string(fault.InvalidInput):
		return http.StatusBadRequest
	case CodeNotFound, string(fault.UnsupportedTool):
		return http.StatusNotFound
	case CodeForbidden:
		return http.StatusForbidden
	case CodeMethod:
		return http.StatusMethodNotAllowed
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeConfiguration:
		return http.StatusUnprocessableEntity
	case CodeStopping:
		return http.StatusServiceUnavailable
	case string(fault.Timeout):
		return http.StatusGatewayTimeout
	case CodeReload, CodeDecided, CodeDigest, CodeRefused, string(fault.NotReady), string(fault.Crashed), string(fault.StartFailed), string(fault.Canceled):
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}

// asError is err as the client is told of it.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return &Error{Code: string(f.Code), Message: f.Reason}
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
