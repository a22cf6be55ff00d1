package pace_test

import (
	"sync"
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

// SPEC S2: what is read at once takes as long as the same in small parts. A minute is the most.
func TestS2WhatIsReadAtOnceIsPacedInProportion(t *testing.T) {
	for name, test := range map[string]struct {
		lines, bytes int
		want         time.Duration // for four times as much
	}{
		"lines":    {20 * pace.MaxLines, 1, 80 * time.Second},
		"bytes":    {1, 2 * pace.MaxBytes, 8 * time.Second},
		"too much": {1 << 40, 1 << 40, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var alone pace.Pace
				var shared pace.Shared
				for what, wait := range map[string]func(done <-chan struct{}, lines, bytes int){"alone": alone.Wait, "shared": shared.Wait} {
					wait(nil, pace.MaxLines, 0) // the first second begins
					began := time.Now()
					for range 4 {
						wait(nil, test.lines, test.bytes)
					}
					if took := time.Since(began); (took - test.want).Abs() > 2*time.Second {
						t.Errorf("%s, it took %v, want about %v", what, took, test.want)
					}
				}
			})
		})
	}
}

// SPEC S2, N2: several streams that share a pace are read as slowly together as one, and who was slow is not held
// up for long by what others have read.
func TestS2StreamsShareAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, each = 10, 3 // seconds of each at the limit
		var p pace.Shared
		var all sync.WaitGroup
		began := time.Now()
		for range streams {
			all.Go(func() {
				for range each * pace.MaxLines {
					p.Wait(nil, 1, 10)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); (took - streams*each*time.Second).Abs() > 2*time.Second {
			t.Errorf("it took %v, want about %d s", took, streams*each)
		}
		done := make(chan struct{})
		close(done)
		for range 10 * pace.MaxLines {
			p.Wait(done, pace.MaxLines, 0)
		}
		began = time.Now()
		p.Wait(nil, pace.MaxLines, 0)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("after a flood, one waits for %v", took)
		}
	})
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
