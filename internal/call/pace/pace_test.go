package pace_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

// SPEC S2: a flood is read at a bounded rate, and what is slower is not held up.
func TestS2AFloodIsReadAtItsPace(t *testing.T) {
	for name, test := range map[string]struct {
		lines, bytes int
		every        time.Duration
		want         time.Duration // for ten seconds' worth at the limit
	}{
		"lines":       {1, 10, 0, 9 * time.Second},
		"large ones":  {1, pace.MaxBytes / pace.MaxLines * 4, 0, 39 * time.Second},
		"slow enough": {1, 10, time.Second / pace.MaxLines, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pace.Pace
				began := time.Now()
				for range 10 * pace.MaxLines {
					time.Sleep(test.every)
					p.Wait(nil, test.lines, test.bytes)
				}
				if took := time.Since(began); (took - test.want).Abs() > 2*time.Second {
					t.Errorf("it took %v, want about %v", took, test.want)
				}
			})
		})
	}
}

// Who ends a stream does not wait for it.
func TestAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace.Pace
		done := make(chan struct{})
		close(done)
		began := time.Now()
		for range 3 {
			p.Wait(done, pace.MaxLines, 0)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
