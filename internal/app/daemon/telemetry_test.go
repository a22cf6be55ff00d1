package daemon

import (
	"testing"

	"github.com/orla-project/orla/internal/call/approvals"
	"github.com/orla-project/orla/internal/observe/telemetry"
)

// SPEC-TOOLS 8.7: each call that a person was asked about is counted once.
func TestT87EachQuestionIsCountedOnce(t *testing.T) {
	for _, c := range []struct {
		what   approvals.Outcome
		was    approvals.Phase
		phase  approvals.Phase
		result telemetry.ApprovalResult
	}{
		{approvals.Decided, "", approvals.Approved, telemetry.Approved},
		{approvals.Decided, "", approvals.Denied, telemetry.Denied},
		{approvals.Extended, "", approvals.Pending, ""},
		{approvals.TimedOut, approvals.Pending, approvals.Expired, telemetry.Expired},
		{approvals.TimedOut, approvals.Approved, approvals.Expired, ""},
		{approvals.Withdrawn, approvals.Pending, approvals.Expired, telemetry.Withdrawn},
		{approvals.Withdrawn, approvals.Approved, approvals.Expired, ""},
	} {
		if got := resultOf(&approvals.Event{What: c.what, Was: c.was, Record: approvals.Record{Phase: c.phase}}); got != c.result {
			t.Errorf("%s of %s: %q; want %q", c.what, c.was, got, c.result)
		}
	}
}
