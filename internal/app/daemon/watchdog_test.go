package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestK1WatchdogMissesAStuckOrla: the watchdog is fed as long as Orla proves
// that it lives, and no longer (SPEC K1).
func TestK1WatchdogMissesAStuckOrla(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		var mu sync.Mutex // guards fed
		var fed []time.Duration
		feeds := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(fed)
		}
		began := time.Now()
		w := &watchdog{
			every: 15 * time.Second,
			prove: func(ctx context.Context) error {
				if !stuck.Load() {
					return nil
				}
				<-ctx.Done()
				return context.Cause(ctx)
			},
			alive: func() {
				mu.Lock()
				defer mu.Unlock()
				fed = append(fed, time.Since(began))
			},
			log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Serve(ctx) }()

		time.Sleep(time.Minute + time.Second) // in a bubble
		want := []time.Duration{0, 15 * time.Second, 30 * time.Second, 45 * time.Second, time.Minute}
		if got := feeds(); !slices.Equal(got, want) {
			t.Errorf("fed at %v; want %v", got, want)
		}
		stuck.Store(true)
		time.Sleep(time.Minute)
		if got := feeds(); len(got) != 5 {
			t.Errorf("fed at %v, though it is stuck", got)
		}
		stuck.Store(false)
		time.Sleep(31 * time.Second)
		if got := feeds(); len(got) < 6 {
			t.Errorf("fed at %v, though it goes on", got)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the watchdog ended with %v", err)
		}
	})
}
