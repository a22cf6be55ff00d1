package telemetry

import (
	"sync"
	"time"
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

// waitBounds are the upper bounds of the histogram of waits for people, in seconds.
var waitBounds = [...]float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400}

// approvals counts what became of questions to people.
type approvals struct {
	ended  results
	mu     sync.Mutex // guards the fields that follow
	waited [len(waitBounds) + 1]uint64
	sum    time.Duration // of the waits
}

func newApprovals() approvals {
	return approvals{ended: newResults(Approved, Denied, Expired, Withdrawn)}
}

// Approval counts a record that does not wait for a decision any more, and for how long it has.
func (t *Telemetry) Approval(result ApprovalResult, waited time.Duration) {
	t.ended.add(string(result), 1)
	if result == Approved || result == Denied {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.waited[bucketOf(waitBounds[:], waited)]++
		t.sum += waited
	}
}

// waits returns the histogram of waits, and their sum.
func (a *approvals) waits() (counts [len(waitBounds) + 1]uint64, sum time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waited, a.sum
}
