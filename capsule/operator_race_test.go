package capsule

import (
	"context"
	"sync"
	"testing"

	"github.com/orla-project/orla/manifest"
)

// SPEC D1, J1: a stop by an operator that comes in the moment in which a process ends
// leaves the capsule one that can be started again.
func TestStopInTheMomentOfAnEnd(t *testing.T) {
	plan := func(int) behaviour { return behaviour{} }
	for range 200 {
		inBubble(t, plan, func(r *manifest.Runtime) { r.Restart.MaxFailures = 0 }, func(t *testing.T, w *fakeWorld, c *Capsule, _ *moves) {
			ok(t, c.Start)
			var orders sync.WaitGroup
			orders.Go(func() { c.Reload("a save") })
			orders.Go(func() { _ = c.Stop(context.Background()) }) // before the next, or after it
			orders.Go(func() { _ = c.Start(context.Background()) })
			orders.Wait()
			ok(t, c.Start)
		})
	}
}
