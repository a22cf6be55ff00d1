package capsule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/call/fault"
)

// SPEC J1, D7a: the capsule of a changed manifest, or of another Orla, stays
// stopped by an operator. It makes nobody wait, and its tools are listed.
func TestHeldSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: well, most: 1}
		dir := t.TempDir()
		life := func(holds *records.Holds, test func(c *Capsule)) {
			c := walker(t, w, unchanged)
			c.opts.Holds = holds
			stop := served(t, c)
			synctest.Wait() // it is served
			test(c)
			stop()
		}
		holds := records.NewHolds(dir)
		life(holds, func(c *Capsule) { ok(t, c.Stop) })
		for _, holds := range []*records.Holds{holds, records.NewHolds(dir)} {
			life(holds, func(c *Capsule) {
				down(t, c, w)
				if offers := c.Offers(); !offers.Known || len(offers.Tools) != 1 {
					t.Errorf("it offers %+v", offers)
				}
				faulty(t, ask(t.Context(), c), fault.NotReady, "by an operator")
				time.Sleep(time.Hour)
				down(t, c, w)
			})
		}
		life(records.NewHolds(dir), func(c *Capsule) { ok(t, c.Start) })
		life(records.NewHolds(dir), func(c *Capsule) {
			if life := c.Life(); life.State != "READY" || life.Held {
				t.Errorf("it is %+v", life)
			}
		})
	})
}

// A stop by an operator that comes while its successor waits for its turn holds that.
func TestHeldWhileTheSuccessorWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: well, most: 1}
		holds := records.NewHolds("")
		old, next := walker(t, w, unchanged), walker(t, w, unchanged)
		old.opts.Holds, next.opts.Holds = holds, holds
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = old.Serve(ctx)
		}()
		synctest.Wait()
		ok(t, old.Stop)
		cancel()
		<-over
		ctx, cancel = context.WithCancel(t.Context())
		over = make(chan struct{})
		go func() {
			defer close(over)
			_ = next.Serve(ctx)
		}()
		synctest.Wait()
		down(t, next, w)
		cancel()
		<-over
	})
}
