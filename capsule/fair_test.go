package capsule

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/turns"
)

// One client that makes many calls at once of a capsule with max_concurrency
// keeps another waiting for two of them at most, and not for all.
func TestPlacesAreGivenInTurn(t *testing.T) {
	const slow = 100 * time.Millisecond
	plan := func(int) behaviour { return behaviour{slow: slow} }
	inBubble(t, plan, unchanged, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		c.places = turns.New(1)
		until(c, func(s *status) bool { return s.state == Ready })
		call := func(line string) {
			if _, err := c.Call(t.Context(), peer.Call{Tool: "walker", Line: line}); err != nil {
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
