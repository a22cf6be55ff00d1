package turns_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/turns"
)

// One who asks a hundred times keeps nobody waiting for longer than a turn.
func TestLinesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := turns.New(1)
		take := func(name string) {
			if err := places.Take(t.Context(), name, 1); err != nil {
				t.Error(err)
			}
		}
		take("flood")
		var served []string // by whoever has the one place
		var wg sync.WaitGroup
		for name := range strings.FieldsSeq("flood flood flood flood a b a") {
			wg.Go(func() {
				take(name)
				served = append(served, name)
				places.Give(1)
			})
			synctest.Wait()
		}
		if got := places.Waiting(); got != 7 {
			t.Errorf("%d wait, want 7", got)
		}
		places.Give(1)
		wg.Wait()
		if got := strings.Join(served, " "); got != "flood a b flood a flood flood" {
			t.Errorf("served were %s", got)
		}
		if got := places.Free(); got != 1 {
			t.Errorf("%d places are free at the end, want 1", got)
		}
	})
}

func TestWhoLeavesTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := turns.New(2)
		if err := places.Take(t.Context(), "a", 2); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		if err := places.Take(ctx, "b", 1); !errors.Is(err, gone) {
			t.Errorf("the wait ends with %v", err)
		}
		if places.Waiting() != 0 || places.Free() != 0 {
			t.Errorf("%d wait and %d are free, want 0 and 0", places.Waiting(), places.Free())
		}
		places.Give(2)
		if got := places.Free(); got != 2 {
			t.Errorf("%d are free, want 2", got)
		}
	})
}

// What is large is not kept waiting by what is small, and what is more than all
// is had alone.
func TestLargeAndSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.New(10)
		var served []string
		var wg sync.WaitGroup
		ask := func(name string, n int64) {
			wg.Go(func() {
				if err := room.Take(t.Context(), name, n); err != nil {
					t.Error(err)
				}
				served = append(served, name)
				time.Sleep(time.Second)
				room.Give(n)
			})
			synctest.Wait()
		}
		ask("first", 6)
		ask("large", 25)
		ask("small", 8)
		ask("tiny", 3)
		wg.Wait()
		if got := strings.Join(served, " "); got != "first large small tiny" {
			t.Errorf("served were %s", got)
		}
	})
}

func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := turns.New(1)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := places.Take(t.Context(), "", 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		places.Resize(3)
		wg.Wait()
		places.Resize(1)
		if got := places.Free(); got != 0 {
			t.Errorf("%d are free, want 0", got)
		}
	})
}

// Whoever comes and goes, never is more taken than there is, and nothing is lost.
func TestNothingIsLost(t *testing.T) {
	const limit = 5
	places := turns.New(limit)
	var mu sync.Mutex
	var taken, most int64
	var wg sync.WaitGroup
	for i := range 20 {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					cancel()
				}
				n := 1 + r.Int64N(3)
				if places.Take(ctx, fmt.Sprint(i%4), n) == nil {
					mu.Lock()
					taken += n
					most = max(most, taken)
					mu.Unlock()
					mu.Lock()
					taken -= n
					mu.Unlock()
					places.Give(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if most > limit || places.Free() != limit || places.Waiting() != 0 {
		t.Errorf("%d were taken at most, %d are free and %d wait at the end", most, places.Free(), places.Waiting())
	}
}
