package fault_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
)

// SPEC-TOOLS §4: whether a call may be tried again is a property of the code.
func TestRetryableIsThePropertyOfACode(t *testing.T) {
	retryable := map[fault.Code]bool{
		fault.RateLimited: true, fault.Timeout: true, fault.NotReady: true, fault.Crashed: true, fault.StartFailed: true,
	}
	seen := map[fault.Code]bool{}
	for _, code := range fault.Codes() {
		if seen[code] {
			t.Errorf("%s is listed twice", code)
		}
		seen[code] = true
		if got := fault.New(code, "x").Retryable(); got != retryable[code] {
			t.Errorf("%s: retryable = %v", code, got)
		}
	}
	yes := true
	if !(&fault.Error{Code: fault.ExecutionFailed, Retry: &yes}).Retryable() {
		t.Error("the producer's own word does not count")
	}
}

func TestFromKeepsWhatHasACodeAndHidesWhatHasNone(t *testing.T) {
	inner := fault.New(fault.AuthInvalid, "who are you")
	if got := fault.From(fmt.Errorf("layer: %w", inner)); got != inner {
		t.Errorf("got %v", got)
	}
	for err, want := range map[error]fault.Code{
		context.DeadlineExceeded: fault.Timeout,
		context.Canceled:         fault.Canceled,
		errors.New("password=1"): fault.ExecutionFailed,
	} {
		got := fault.From(err)
		if got.Code != want || !errors.Is(got, err) {
			t.Errorf("%v: got %v; want %s with its cause", err, got, want)
		}
		if strings.Contains(got.Reason, "password") {
			t.Errorf("internal text reaches the client: %s", got.Reason)
		}
	}
	if fault.From(nil) != nil || fault.CodeOf(nil) != "" {
		t.Error("nil has a fault")
	}
}
