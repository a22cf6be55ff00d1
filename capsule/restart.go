package capsule

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/manifest"
)

// healthy is how long a capsule must have been READY for its first failure to
// be an accident, which is mended at once (SPEC D9).
const healthy = time.Second

// restarts decides when a capsule that failed is started again (SPEC D9). It
// belongs to one goroutine.
type restarts struct {
	policy   manifest.Restart
	failures int // in a row
	pauses   *backoff.ExponentialBackOff
}

func newRestarts(policy manifest.Restart) *restarts {
	return &restarts{policy: policy, pauses: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(policy.Initial),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(policy.Max),
		backoff.WithRandomizationFactor(0), // the jitter is ours: upward only
		backoff.WithMaxElapsedTime(0),      // the limit is max_failures
	)}
}

// after counts a failure that came after a time of READY, 0 for none. It returns
// how long to wait before the next start, or false when there is to be none.
//
// The jitter goes upward only, so that a pause that was told is never cut short,
// and capsules that died together do not start together for ever.
func (r *restarts) after(ready time.Duration) (time.Duration, bool) {
	if ready >= r.policy.ResetAfter && ready > 0 {
		r.forgive()
	}
	r.failures++
	if r.policy.MaxFailures > 0 && r.failures >= r.policy.MaxFailures {
		return 0, false
	}
	if r.failures == 1 && ready >= healthy {
		return 0, true
	}
	return jittered(r.pauses.NextBackOff()), true
}

// mostLater is the longest pause before a remote server is tried again that has failed
// max_failures times: it is tried for ever, at a low rate.
const mostLater = 2 * time.Minute

// afterLimit returns the pause before a remote server is tried again after
// max_failures failures. It goes on doubling.
func (r *restarts) afterLimit() time.Duration {
	most := max(mostLater, r.policy.Initial)
	pause := r.policy.Initial
	for n := 1; n < r.failures && pause < most; n++ {
		pause = min(2*pause, most)
	}
	return jittered(pause)
}

// later returns the pause before a remote server is tried again that does not take
// Orla's credentials.
func (r *restarts) later() time.Duration { return jittered(mostLater) }

// jittered makes a pause longer by a random part of it.
func jittered(pause time.Duration) time.Duration {
	const jitter = 0.2
	return pause + time.Duration(rand.Float64()*jitter*float64(pause))
}

// forgive starts the count afresh.
func (r *restarts) forgive() {
	r.failures = 0
	r.pauses.Reset()
}
