package turns_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/turns"
)

// A line that is alone takes what it wants; beside another, and for a while after
// it, no more than its part, whatever it has already.
func TestALineIsBoundedBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := turns.NewLines(2)
		for range 5 {
			if !lines.Try("flood") {
				t.Fatal("alone, it has to wait")
			}
		}
		if !lines.Try("other") {
			t.Fatal("another has to wait")
		}
		lines.Give("other")
		var got atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := lines.Take(t.Context(), "flood"); err != nil {
					t.Error(err)
				}
				got.Add(1)
			})
			synctest.Wait()
		}
		for i, want := range []int64{0, 0, 0, 1, 2} { // it has 4, 3, 2, 2 and 2 when it has given one back
			lines.Give("flood")
			synctest.Wait()
			if got.Load() != want {
				t.Errorf("after %d were given back, %d got one; want %d", i+1, got.Load(), want)
			}
		}
		time.Sleep(time.Minute)
		lines.Give("flood")
		wg.Wait()
	})
}

func TestWhoLeavesALineTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := turns.NewLines(1)
		lines.Try("a")
		lines.Try("b")
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		if err := lines.Take(ctx, "a"); !errors.Is(err, gone) {
			t.Errorf("the wait ends with %v", err)
		}
		lines.Give("a")
		if !lines.Try("a") {
			t.Error("who left has taken one")
		}
	})
}

// Whoever comes and goes, no line has more than its part beside others, and all
// are served.
func TestNoLineIsForgotten(t *testing.T) {
	lines := turns.NewLines(1)
	lines.Try("always here")
	var mu sync.Mutex
	taken := map[string]int{}
	var wg sync.WaitGroup
	for i := range 20 {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		wg.Go(func() {
			name := fmt.Sprint(i % 4)
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					cancel()
				}
				if lines.Take(ctx, name) == nil {
					mu.Lock()
					if taken[name]++; taken[name] > 1 {
						t.Errorf("line %s has %d", name, taken[name])
					}
					mu.Unlock()
					mu.Lock()
					taken[name]--
					mu.Unlock()
					lines.Give(name)
				}
				cancel()
			}
		})
	}
	wg.Wait()
}
