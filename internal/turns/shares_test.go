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

// One that takes all it can get leaves as much to those that come later.
func TestALineLeavesAsMuchAsItHas(t *testing.T) {
	room := turns.NewShares(128)
	greedy := 0
	for room.Try("greedy", 1) {
		greedy++
	}
	late := 0
	for room.Try("late", 1) {
		late++
	}
	if greedy != 64 || late != 32 || room.Free() != 32 {
		t.Errorf("one has %d, one that came later %d, and %d are free; want 64, 32 and 32", greedy, late, room.Free())
	}
	room.Give("greedy", 64)
	room.Give("late", 32)
	if !room.Try("one", 1000) || room.Try("two", 1) {
		t.Error("what is more than all is not had by one that is alone, or not by it alone")
	}
}

// Who waits for its own share keeps nobody else waiting, and who leaves takes nothing.
func TestWaitingForAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewShares(4)
		room.Add("flood", 3)
		var served []string
		var wg sync.WaitGroup
		for name := range strings.FieldsSeq("flood other flood flood") {
			wg.Go(func() {
				if err := room.Take(t.Context(), name, 1); err != nil {
					t.Error(err)
				}
				served = append(served, name)
			})
			synctest.Wait()
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		if err := room.Take(ctx, "flood", 1); !errors.Is(err, gone) {
			t.Errorf("the wait ends with %v", err)
		}
		if got := strings.Join(served, " "); got != "other" {
			t.Errorf("served were %q", got)
		}
		for range 4 {
			room.Give("flood", 1)
			synctest.Wait()
		}
		wg.Wait()
		if got := strings.Join(served, " "); got != "other flood flood flood" {
			t.Errorf("served were %q", got)
		}
	})
}

// Whoever comes and goes, never is more taken than there is, and nothing is lost.
func TestNoShareIsLost(t *testing.T) {
	const limit = 10
	room := turns.NewShares(limit)
	var wg sync.WaitGroup
	for i := range 20 {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					cancel()
				}
				name, n := fmt.Sprint(i%4), 1+r.Int64N(3)
				if room.Take(ctx, name, n) == nil {
					if free := room.Free(); free > limit-n {
						t.Errorf("%d are free while %d are taken", free, n)
					}
					room.Give(name, n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if room.Free() != limit {
		t.Errorf("%d are free at the end, want %d", room.Free(), limit)
	}
}
