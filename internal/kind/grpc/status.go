package grpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
)

// meaning returns the code for a status of the service (SPEC-TOOLS 3.3), and whether a retry can
// help.
func meaning(status connect.Code) (code fault.Code, retry bool) {
	switch status {
	case connect.CodeUnauthenticated:
		return fault.AuthInvalid, false
	case connect.CodePermissionDenied:
		return fault.AuthForbidden, false
	case connect.CodeResourceExhausted:
		return fault.RateLimited, true
	case connect.CodeDeadlineExceeded:
		return fault.Timeout, true
	case connect.CodeUnavailable, connect.CodeAborted, connect.CodeInternal, connect.CodeUnknown:
		return fault.ExecutionFailed, true
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return fault.InvalidInput, false
	default:
		return fault.ExecutionFailed, false
	}
}

// failure returns the error of a call without an answer.
func (t *Tool) failure(ctx context.Context, err error, c auth.Credentials) *fault.Error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx))
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		if errors.Is(f, outbound.ErrNotTLS) {
			plain := *f
			plain.Reason += "; without TLS its endpoint is grpc://" + t.host
			return &plain
		}
		return f
	}
	status, ok := errors.AsType[*connect.Error](err)
	switch {
	case !ok:
		return fault.From(err)
	case connect.IsWireError(err):
		return t.answered(status, c)
	}
	return t.broken(status, c)
}

// answered is the error for a call that the service ended with a status.
func (t *Tool) answered(status *connect.Error, c auth.Credentials) *fault.Error {
	code, retry := meaning(status.Code())
	f := fault.New(code, "%s answered %s", t.name, status.Code())
	f.Retry, f.RetryAfter = &retry, retryAfter(status)
	if said := words(c.Redact(status.Message())); said != "" {
		f.Logged = f.Reason
		f.Reason += ": " + said
	}
	return f
}

// broken is the error for an answer that is not valid gRPC. A retry can help if the answer was cut
// off, but not if it has no message or two.
func (t *Tool) broken(status *connect.Error, c auth.Credentials) *fault.Error {
	return fault.New(fault.ExecutionFailed, "the answer of %s is not a whole gRPC answer: %s", t.name, words(c.Redact(status.Message()))).
		Again(status.Code() != connect.CodeUnimplemented).LoggedAs("the answer of " + t.name + " is not a whole gRPC answer")
}

// maxWords bounds how much of a service's error message is used, in bytes.
const maxWords = 512

// words returns the beginning of a service's text, on one line and without control characters.
func words(text string) string { return outbound.Words(text, maxWords) }

// The type of google.rpc.RetryInfo, and its one field, a google.protobuf.Duration.
const (
	retryInfo  = "google.rpc.RetryInfo"
	retryDelay = protowire.Number(1)
)

// maxRetryAfter is longer than any call waits.
const maxRetryAfter = 24 * time.Hour

// retryAfter returns the pause that the service asks for; 0 if it does not.
func retryAfter(status *connect.Error) time.Duration {
	for _, d := range status.Details() {
		if d.Type() == retryInfo {
			return min(max(delay(d.Bytes()), 0), maxRetryAfter)
		}
	}
	return 0
}

// delay reads the retry_delay of a RetryInfo.
func delay(raw []byte) time.Duration {
	field, kind, n := protowire.ConsumeTag(raw)
	if n < 0 || field != retryDelay || kind != protowire.BytesType {
		return 0
	}
	raw, n = protowire.ConsumeBytes(raw[n:])
	var d durationpb.Duration
	if n < 0 || proto.Unmarshal(raw, &d) != nil {
		return 0
	}
	return d.AsDuration()
}
