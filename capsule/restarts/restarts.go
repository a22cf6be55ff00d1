// Package restarts decides when a capsule that failed is started again.
package restarts

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/manifest"
)

// healthy is how long a capsule must have been READY so that it is started again at once
// after its first failure (SPEC D9).
const healthy = time.Second

// Schedule decides when one capsule that failed is started again (SPEC D9). It
// belongs to one goroutine, but for Failures.
type Schedule struct {
	policy   manifest.Restart
	failures atomic.Int64 // in a row
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

// Healthy reports whether a capsule was READY for long enough to be started again at once.
func (*Schedule) Healthy(ready time.Duration) bool { return ready >= healthy }

// Failures is how many there were in a row. It may be called from any goroutine.
func (s *Schedule) Failures() int { return int(s.failures.Load()) }

// After counts a failure of a capsule that was READY for some time; 0 if it never was. It
// returns how long to wait before the next start, or false if there is none.
//
// The jitter only adds, so that a pause is never shorter than it was said to be. Without
// it, capsules that failed together would always start together.
func (s *Schedule) After(ready time.Duration) (time.Duration, bool) {
	if ready >= s.policy.ResetAfter && ready > 0 {
		s.Forgive()
	}
	failures := int(s.failures.Add(1))
	if s.policy.MaxFailures > 0 && failures >= s.policy.MaxFailures {
		return 0, false
	}
	if failures == 1 && s.Healthy(ready) {
		return 0, true
	}
	return jittered(s.pauses.NextBackOff()), true
}

// mostLater is the longest pause before the next attempt to reach a remote server that has
// failed max_failures times. The attempts never end.
const mostLater = 2 * time.Minute

// AfterLimit returns the pause before the next attempt to reach a remote server that has
// failed max_failures times. It doubles each time, up to mostLater.
func (s *Schedule) AfterLimit() time.Duration {
	most := max(mostLater, s.policy.Initial)
	pause := s.policy.Initial
	for n := 1; n < s.Failures() && pause < most; n++ {
		pause = min(2*pause, most)
	}
	return jittered(pause)
}

// Later returns the pause before the next attempt to reach a remote server that refused
// Orla's credentials.
func (s *Schedule) Later() time.Duration { return jittered(mostLater) }

// jittered makes a pause longer by a random part of it.
func jittered(pause time.Duration) time.Duration {
	const jitter = 0.2
	return pause + time.Duration(rand.Float64()*jitter*float64(pause))
}

// Forgive resets the count of failures.
func (s *Schedule) Forgive() {
	s.failures.Store(0)
	s.pauses.Reset()
}
