// Package restarts decides when a capsule that failed is started again.
package restarts

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/manifest"
)

// healthy is how long a capsule must have been READY for its first failure to
// be an accident, which is repaired at once (SPEC D9).
const healthy = time.Second

// Schedule decides when one capsule that failed is started again (SPEC D9). It
// belongs to one goroutine.
type Schedule struct {
	policy   manifest.Restart
	failures int // in a row
	pauses   *backoff.ExponentialBackOff
}

// New returns a Schedule for a capsule that has not failed.
func New(policy manifest.Restart) *Schedule {
	return &Schedule{policy: policy, pauses: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(policy.Initial),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(policy.Max),
		backoff.WithRandomizationFactor(0), // the jitter is ours: upward only
		backoff.WithMaxElapsedTime(0),      // the limit is max_failures
	)}
}

// Healthy reports whether a time of READY was long enough for a failure after it to be an
// accident.
func (*Schedule) Healthy(ready time.Duration) bool { return ready >= healthy }

// Failures is how many there were in a row.
func (s *Schedule) Failures() int { return s.failures }

// After counts a failure that came after a time of READY, 0 for none. It returns
// how long to wait before the next start, or false when there is to be none.
//
// The jitter goes upward only, so that a pause that was told is never cut short,
// and capsules that died together do not start together for ever.
func (s *Schedule) After(ready time.Duration) (time.Duration, bool) {
	if ready >= s.policy.ResetAfter && ready > 0 {
		s.Forgive()
	}
	s.failures++
	if s.policy.MaxFailures > 0 && s.failures >= s.policy.MaxFailures {
		return 0, false
	}
	if s.failures == 1 && s.Healthy(ready) {
		return 0, true
	}
	return jittered(s.pauses.NextBackOff()), true
}

// mostLater is the longest pause before a remote server is tried again that has failed
// max_failures times: it is tried for ever, at a low rate.
const mostLater = 2 * time.Minute

// AfterLimit returns the pause before a remote server is tried again after
// max_failures failures. It goes on doubling.
func (s *Schedule) AfterLimit() time.Duration {
	most := max(mostLater, s.policy.Initial)
	pause := s.policy.Initial
	for n := 1; n < s.failures && pause < most; n++ {
		pause = min(2*pause, most)
	}
	return jittered(pause)
}

// Later returns the pause before a remote server is tried again that does not take
// Orla's credentials.
func (s *Schedule) Later() time.Duration { return jittered(mostLater) }

// jittered makes a pause longer by a random part of it.
func jittered(pause time.Duration) time.Duration {
	const jitter = 0.2
	return pause + time.Duration(rand.Float64()*jitter*float64(pause))
}

// Forgive starts the count afresh.
func (s *Schedule) Forgive() {
	s.failures = 0
	s.pauses.Reset()
}
