package restarts

import (
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 3.5: after max_failures the pauses before a remote server is tried
// again go on doubling, up to a bound, and never end.
func TestT35PausesAfterTheLimit(t *testing.T) {
	r := New(manifest.Restart{Initial: 2 * time.Second, Max: 30 * time.Second, MaxFailures: 3})
	for range 3 {
		r.After(0)
	}
	for _, want := range []time.Duration{8, 16, 32, 64, 120, 120, 120} {
		want *= time.Second
		if got := r.AfterLimit(); got < want || got > want+want/5 {
			t.Errorf("after %d failures the pause is %s; want %s, and a fifth more at most", r.Failures(), got, want)
		}
		if _, again := r.After(0); again {
			t.Error("the limit is not kept")
		}
	}
	r = New(manifest.Restart{Initial: time.Hour, Max: time.Hour, MaxFailures: 1})
	r.After(0)
	r.After(0)
	if got := r.AfterLimit(); got < time.Hour || got > 72*time.Minute {
		t.Errorf("a pause that the manifest wants to be longer is %s", got)
	}
}
