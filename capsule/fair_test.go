package capsule

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// One client that makes many calls at once of a capsule with max_concurrency
// keeps another waiting for two of them at most, and not for all.
func TestPlacesAreGivenInTurn(t *testing.T) {
	const slow = 100 * time.Millisecond
	plan := func(int) behaviour { return behaviour{slow: slow} }
	inBubble(t, plan, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		c.places = placesOf(1)
		until(c, func(s *status) bool { return s.state == Ready })
		call := func(line string) {
			if _, err := c.Call(t.Context(), peer.Call{Tool: "walker", Owner: turns.Owner{Session: line}}); err != nil {
				t.Error(err)
			}
		}
		var flood sync.WaitGroup
		for range 100 {
			flood.Go(func() { call("flood") })
		}
		synctest.Wait()
		for range 5 {
			began := time.Now()
			call("other")
			if took := time.Since(began); took > 3*slow {
				t.Errorf("a call beside the flood took %s, want %s at most", took, 3*slow)
			}
		}
		flood.Wait()
	})
}

// Without max_concurrency, a capsule that answers one call after the other keeps
// others waiting for no more than the part that one client may have beside them.
func TestAFloodIsBoundedBesideOthers(t *testing.T) {
	const slow = 100 * time.Millisecond
	plan := func(int) behaviour { return behaviour{slow: slow} }
	inBubble(t, plan, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		other := func() {
			began := time.Now()
			if _, err := c.Call(t.Context(), peer.Call{Tool: "walker", Owner: turns.Owner{Session: "other"}}); err != nil {
				t.Error(err)
			}
			if took, most := time.Since(began), (maxBeside+2)*slow; took > most {
				t.Errorf("a call beside the flood took %s, want %s at most", took, most)
			}
		}
		other()
		var flood sync.WaitGroup
		for range 200 {
			flood.Go(func() {
				if _, err := c.Call(t.Context(), peer.Call{Tool: "walker", Owner: turns.Owner{Session: "flood"}}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for range 5 {
			other()
		}
		flood.Wait()
	})
}

// One client that fills the queue of a capsule that starts leaves room for others.
func TestAFloodLeavesRoomInTheQueue(t *testing.T) {
	plan := func(int) behaviour { return behaviour{hello: time.Second} }
	inBubble(t, plan, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		var refused atomic.Int64
		var calls sync.WaitGroup
		call := func(line string) {
			calls.Go(func() {
				if _, err := c.Call(t.Context(), peer.Call{Tool: "walker", Owner: turns.Owner{Session: line}}); err != nil {
					refused.Add(1)
				}
			})
		}
		for range maxWaiting + 100 {
			call("flood")
		}
		synctest.Wait()
		for range 100 {
			call("other")
		}
		calls.Wait()
		if got := refused.Load(); got != 100 {
			t.Errorf("%d calls were refused, want the flood's 100", got)
		}
	})
}

// With a thousand sessions of one caller that call all the time, a call of another
// caller takes at most three times as long as alone: also at a capsule that answers
// one call after the other.
func TestN2AThousandSessionsSlowAnotherCallerByItsShare(t *testing.T) {
	const slow = 100 * time.Millisecond
	for name, concurrency := range map[string]int{"one at a time": 1, "no max_concurrency": 0} {
		t.Run(name, func(t *testing.T) {
			plan := func(int) behaviour { return behaviour{slow: slow} }
			inBubble(t, plan, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
				c.places = placesOf(concurrency)
				until(c, func(s *status) bool { return s.state == Ready })
				call := func(caller, session string) {
					if _, err := c.Call(t.Context(), peer.Call{Tool: "walker", Owner: turns.Owner{Caller: caller, Session: session}}); err != nil {
						t.Error(err)
					}
				}
				call("small", "1") // it is there before the others come
				var done atomic.Bool
				var flood sync.WaitGroup
				for i := range 1000 {
					flood.Go(func() {
						for !done.Load() {
							call("big", fmt.Sprint(i))
						}
					})
				}
				synctest.Wait()
				for range 100 {
					began := time.Now()
					call("small", "1")
					if took := time.Since(began); took > 3*slow {
						t.Errorf("a call took %s, want %s at most", took, 3*slow)
					}
				}
				done.Store(true)
				flood.Wait()
			})
		})
	}
}

// SPEC N2: while a large answer waits to be read in its caller's turn, its call keeps no place of the capsule.
func TestN2ALargeAnswerLeavesItsPlace(t *testing.T) {
	plan := func(int) behaviour { return behaviour{large: turns.Heavy} }
	inBubble(t, plan, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		c.places = placesOf(1)
		until(c, func(s *status) bool { return s.state == Ready })
		room := turns.NewRoom(64 << 20)
		other := turns.Owner{Caller: "ann", Session: "other"}
		held, release := room.Open(t.Context(), other)
		defer release()
		for range turns.Workers() {
			if err := turns.AccountOf(held).BeginWork(held); err != nil {
				t.Fatal(err)
			}
		}
		one := turns.Owner{Caller: "ann", Session: "one"}
		ctx, releaseOne := room.Open(t.Context(), one)
		defer releaseOne()
		called := make(chan error, 1)
		go func() {
			_, err := c.Call(ctx, peer.Call{Tool: "walker", Owner: one})
			called <- err
		}()
		time.Sleep(time.Second) // the answer has come
		if len(called) > 0 {
			t.Error("the answer does not wait")
		}
		if c.places.Try(other) {
			c.places.Give(other)
		} else {
			t.Error("its call has the place")
		}
		for range turns.Workers() {
			turns.AccountOf(held).EndWork()
		}
		if err := <-called; err != nil {
			t.Error(err)
		}
		if !c.places.Try(other) {
			t.Error("the place is not given back")
		}
	})
}
