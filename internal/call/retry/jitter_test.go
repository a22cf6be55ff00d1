package retry_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// pausesOf returns the pauses of a call that never succeeds. It must be called
// inside a bubble.
func pausesOf(ctx context.Context, policy manifest.Retry) []time.Duration {
	s := &script{answers: []func(context.Context, peer.Call) (peer.Answer, error){fails(crash())}}
	_, _ = wrapped(tried(policy), s)(ctx, peer.Call{})
	var pauses []time.Duration
	for i := range len(s.at) - 1 {
		pauses = append(pauses, s.at[i+1]-s.at[i])
	}
	return pauses
}

// SPEC-TOOLS 6.1: full is uniform in [0,d], equal is d/2 and uniform in [0,d/2].
func TestJitterIsUniform(t *testing.T) {
	const d, n, parts = 32 * time.Second, 4000, 8
	for jitter, least := range map[manifest.Jitter]time.Duration{manifest.JitterFull: 0, manifest.JitterEqual: d / 2} {
		synctest.Test(t, func(t *testing.T) {
			pauses := pausesOf(t.Context(), manifest.Retry{MaxAttempts: n + 1, Backoff: d, MaxBackoff: d, Jitter: jitter})
			var in [parts]int
			for _, p := range pauses {
				if p < least || p > d {
					t.Fatalf("%s: a pause of %s; want %s to %s", jitter, p, least, d)
				}
				in[min(int(parts*(p-least)/(d-least)), parts-1)]++
			}
			// Chi-squared with 7 degrees of freedom: above 40 once in a million runs.
			chi := 0.0
			for _, got := range in {
				chi += (float64(got) - n/parts) * (float64(got) - n/parts) / (n / parts)
			}
			if chi > 40 {
				t.Errorf("%s: %v pauses in each eighth: not uniform", jitter, in)
			}
			if again := pausesOf(t.Context(), manifest.Retry{MaxAttempts: 9, Backoff: d, MaxBackoff: d, Jitter: jitter}); slices.Equal(again, pauses[:8]) {
				t.Errorf("%s: the same pauses twice: %v", jitter, again)
			}
		})
	}
}

// SPEC-TOOLS 6.1, of any policy: pause n is min(backoff × 2^(n-1), max_backoff)
// as it is, or within its jitter's bounds.
func TestPausesAreAsTheFormulaSays(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		policy := manifest.Retry{
			MaxAttempts: rapid.IntRange(2, 100).Draw(r, "max_attempts"),
			Backoff:     time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "backoff")),
			MaxBackoff:  time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(r, "max_backoff")),
			Jitter:      rapid.SampledFrom([]manifest.Jitter{manifest.JitterNone, manifest.JitterFull, manifest.JitterEqual}).Draw(r, "jitter"),
		}
		var pauses []time.Duration
		synctest.Test(t, func(t *testing.T) { pauses = pausesOf(t.Context(), policy) })
		if len(pauses) != policy.MaxAttempts-1 {
			r.Fatalf("%d pauses for %d attempts", len(pauses), policy.MaxAttempts)
		}
		d := policy.Backoff
		for i, got := range pauses {
			most := min(d, policy.MaxBackoff)
			least := map[manifest.Jitter]time.Duration{manifest.JitterNone: most, manifest.JitterEqual: most / 2}[policy.Jitter]
			if got < least || got > most {
				r.Fatalf("pause %d is %s; want %s to %s", i+1, got, least, most)
			}
			d = min(2*d, policy.MaxBackoff)
		}
	})
}
