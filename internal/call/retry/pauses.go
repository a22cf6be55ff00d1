package retry

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/manifest"
)

// pauses are those between the attempts of one call (SPEC-TOOLS 6.1).
type pauses struct {
	policy manifest.Retry
	steps  *backoff.ExponentialBackOff
}

func newPauses(policy manifest.Retry) *pauses {
	return &pauses{policy: policy, steps: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(policy.Backoff, policy.MaxBackoff)),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(policy.MaxBackoff),
		backoff.WithRandomizationFactor(0), // its jitter goes above the longest pause; ours does not
		backoff.WithMaxElapsedTime(0),      // the limit is max_attempts
	)}
}

// next returns the next pause: min(backoff × 2^(n-1), max_backoff), with jitter.
func (p *pauses) next() time.Duration {
	d := p.steps.NextBackOff()
	switch p.policy.Jitter {
	case manifest.JitterFull:
		return upTo(d)
	case manifest.JitterEqual:
		return d - d/2 + upTo(d/2)
	case manifest.JitterNone:
	}
	return d
}

// upTo returns a random time from 0 to d, both included.
func upTo(d time.Duration) time.Duration {
	return time.Duration(rand.Uint64N(uint64(d) + 1))
}
