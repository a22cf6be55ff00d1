package turns_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// N2: who asks for much keeps nobody else out, and no more wait than there is room for.
func TestN2ADoorIsSharedByNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting, patience = 100, 10 * time.Second
		d := turns.NewDoor(2, waiting, patience)
		began := time.Now()
		use := func(ctx context.Context, network string) bool {
			in := d.Enter(ctx, network)
			if in {
				time.Sleep(time.Second)
				d.Leave(network)
			}
			return in
		}
		var asking sync.WaitGroup
		var mu sync.Mutex
		in := map[bool]int{}
		var at time.Duration // when they that were kept out knew it
		for range 2 * waiting {
			asking.Go(func() {
				is := use(t.Context(), "192.0.2.1")
				mu.Lock()
				defer mu.Unlock()
				if in[is]++; !is {
					at = time.Since(began)
				}
			})
		}
		synctest.Wait()
		if in[false] < waiting {
			t.Errorf("%d of one network wait", 2*waiting-in[false])
		}
		left, leave := context.WithCancel(t.Context())
		leave()
		if use(left, "192.0.2.2") {
			t.Error("who has left is let in")
		}
		if !use(t.Context(), "192.0.2.2") || time.Since(began) > 2*time.Second {
			t.Errorf("another network was let in after %v, if at all", time.Since(began)-time.Second)
		}
		asking.Wait()
		if at != patience {
			t.Errorf("the last one that was kept out waited %v", at)
		}
	})
}
