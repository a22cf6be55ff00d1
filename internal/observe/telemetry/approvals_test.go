package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/telemetry"
)

// SPEC-TOOLS 8.7: metrics have how many calls wait for a decision, what was decided, and how long that took.
func TestT87MetricsOfApprovals(t *testing.T) {
	tel, _ := newTelemetry(func(o *telemetry.Options) { o.Waiting = func() int { return 3 } })
	tel.Approval(telemetry.Approved, 20*time.Second)
	tel.Approval(telemetry.Denied, 70*time.Second)
	tel.Approval(telemetry.Expired, 0)
	tel.Approval(telemetry.Expired, 0)
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`orla_approvals_waiting 3`, `orla_approvals_total{result="approved"} 1`, `orla_approvals_total{result="denied"} 1`,
		`orla_approvals_total{result="expired"} 2`, `orla_approvals_total{result="withdrawn"} 0`,
		`orla_approval_wait_seconds_bucket{le="15"} 0`, `orla_approval_wait_seconds_bucket{le="30"} 1`, `orla_approval_wait_seconds_count 2`, `orla_approval_wait_seconds_sum 90`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}
