package turns_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// One that takes all it can get leaves as much to those that come later.
func TestALineLeavesAsMuchAsItHas(t *testing.T) {
	room := turns.NewShares(128)
	greedy := 0
	for room.Try(of("greedy"), 1) {
		greedy++
	}
	late := 0
	for room.Try(of("late"), 1) {
		late++
	}
	if greedy != 64 || late != 32 || room.Free() != 32 {
		t.Errorf("one has %d, one that came later %d, and %d are free; want 64, 32 and 32", greedy, late, room.Free())
	}
	room.Give(of("greedy"), 64)
	room.Give(of("late"), 32)
	if !room.Try(of("one"), 1000) || room.Try(of("two"), 1) {
		t.Error("what is more than all is not had by one that is alone, or not by it alone")
	}
}

// Who waits for its own share keeps nobody else waiting, and who leaves takes nothing.
func TestWaitingForAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewShares(4)
		room.Add(of("flood"), 3)
		var served []string
		var wg sync.WaitGroup
		for name := range strings.FieldsSeq("flood other flood flood") {
			wg.Go(func() {
				if err := room.Take(t.Context(), of(name), 1); err != nil {
					t.Error(err)
				}
				served = append(served, name)
			})
			synctest.Wait()
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		if err := room.Take(ctx, of("flood"), 1); !errors.Is(err, gone) {
			t.Errorf("the wait ends with %v", err)
		}
		if got := strings.Join(served, " "); got != "other" {
			t.Errorf("served were %q", got)
		}
		for range 4 {
			room.Give(of("flood"), 1)
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
	owners := []turns.Owner{of("a"), of("b"), of("c/1"), of("c/2"), of("c/3"), of("d/1"), of("e")}
	var wg sync.WaitGroup
	for i := range 20 {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(3) == 0 {
					cancel()
				}
				name, n := owners[i%len(owners)], 1+r.Int64N(3)
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

// A caller with many sessions takes no more than half, and leaves the rest to
// another; a session leaves as much of its caller's part to the others of it.
func TestN2SharesAreTheCallersFirst(t *testing.T) {
	room := turns.NewShares(128)
	took := map[string]int{}
	for range 128 { // as if all came at once
		for _, word := range []string{"big/1", "big/2", "big/3", "big/4", "big/5", "big/6", "big/7", "big/8"} {
			if room.Try(of(word), 1) {
				took[word]++
			}
		}
	}
	all := 0
	for word, n := range took {
		if all += n; n < 5 {
			t.Errorf("%s has %d beside seven of its caller", word, n)
		}
	}
	if all > 64 {
		t.Errorf("a caller has %d of 128", all)
	}
	late := 0
	for room.Try(of("late/1"), 1) {
		late++
	}
	if late < 15 {
		t.Errorf("one session of a caller that came later has %d", late)
	}
}

// Of those who wait the one that would have the least is served first, the
// caller's part before the session's.
func TestN2WhoHasLeastIsServedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := turns.NewShares(16)
		room.Add(of("big/1"), 6)
		room.Add(of("small/1"), 2)
		room.Add(of("none/1"), 8)
		var mu sync.Mutex
		var served []string
		var wg sync.WaitGroup
		for word := range strings.FieldsSeq("big/1 big/2 small/1 small/2 new") {
			wg.Go(func() {
				if err := room.Take(t.Context(), of(word), 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				served = append(served, word)
			})
			synctest.Wait()
		}
		for range 8 {
			room.Give(of("none/1"), 1)
			synctest.Wait()
		}
		room.Give(of("small/1"), 2)
		synctest.Wait()
		for range 6 {
			room.Give(of("big/1"), 1)
			synctest.Wait()
		}
		wg.Wait()
		if got := strings.Join(served, " "); got != "new small/2 small/1 big/2 big/1" {
			t.Errorf("served were %s", got)
		}
	})
}

// To take a share that nobody else wants costs next to nothing, also for callers that take
// turns.
func BenchmarkSharesTake(b *testing.B) {
	for _, words := range []string{"session", "caller/session", "caller/session other/session"} {
		b.Run(words, func(b *testing.B) {
			room, ctx := turns.NewShares(128), b.Context()
			var owners []turns.Owner
			for word := range strings.FieldsSeq(words) {
				owners = append(owners, of(word))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				owner := owners[i%len(owners)]
				if err := room.Take(ctx, owner, 1); err != nil {
					b.Fatal(err)
				}
				room.Give(owner, 1)
			}
		})
	}
}

// Callers that come and go one after the other are forgotten, and allocate nothing.
func TestN2WhoHasNothingIsForgotten(t *testing.T) {
	room := turns.NewShares(128)
	words := []string{"a/1", "b/1", "a/2", "c", "d"}
	each := func() {
		for _, word := range words {
			if !room.Try(of(word), 1) {
				t.Fatalf("there is no room for %s", word)
			}
		}
		for _, word := range words {
			room.Give(of(word), 1)
		}
	}
	each()
	if sessions, callers := room.Known(); sessions > 1 || callers > 1 {
		t.Errorf("%d sessions of %d callers are known, want the last one at most", sessions, callers)
	}
	if allocs := testing.AllocsPerRun(100, each); allocs > 0 {
		t.Errorf("to come again takes %v allocations", allocs)
	}
}
