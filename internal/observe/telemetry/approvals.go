package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ApprovalResult is how the wait for a person's decision about a call has ended.
type ApprovalResult string

// The results.
const (
	Approved  ApprovalResult = "approved"
	Denied    ApprovalResult = "denied"
	Expired   ApprovalResult = "expired"   // nobody decided in time
	Withdrawn ApprovalResult = "withdrawn" // the rules have changed, for example
)

// approvals counts what became of questions to people.
type approvals struct {
	ended  *prometheus.CounterVec
	waited prometheus.Histogram
}

func newApprovals() approvals {
	a := approvals{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orla_approvals_total", Help: "Records of calls that needed an approval and do not wait any more, by their result.",
		}, []string{"result"}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "orla_approval_wait_seconds", Help: "How long it took until somebody approved or denied a call.",
			Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400},
		}),
	}
	for _, result := range []ApprovalResult{Approved, Denied, Expired, Withdrawn} {
		a.ended.WithLabelValues(string(result)) // a series that exists from the start shows its first increase
	}
	return a
}

// Approval counts a record that does not wait for a decision any more, and for how long it has.
func (t *Telemetry) Approval(result ApprovalResult, waited time.Duration) {
	t.ended.WithLabelValues(string(result)).Inc()
	if result == Approved || result == Denied {
		t.waited.Observe(waited.Seconds())
	}
}
