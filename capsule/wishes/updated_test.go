package wishes_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/capsule/wishes"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// SPEC N2, G3: of many updates at once each that is followed is delivered, once, however many others there are.
func TestN2NoUpdateOfAFollowedResourceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wishes.New()
		const followed = 1000
		for i := range followed {
			w.Remember(peer.Request{Method: "resources/subscribe", Params: fmt.Appendf(nil, `{"uri":"x:%d"}`, i)})
		}
		for i := range 3 * wishes.MaxSubscribed {
			w.Heard(fmt.Sprint("other:", i))
		}
		for i := range followed {
			w.Heard(fmt.Sprint("x:", i))
			w.Heard(fmt.Sprint("x:", i))
			w.Heard(fmt.Sprint("more:", i))
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go w.Deliver(ctx)
		told := map[string]int{}
		for idle := false; !idle; {
			synctest.Wait()
			select {
			case uri := <-w.Updated():
				told[uri]++
			default:
				idle = true
			}
		}
		if len(told) > wishes.MaxSubscribed+1 {
			t.Errorf("%d updates waited", len(told))
		}
		for i := range followed {
			if n := told[fmt.Sprint("x:", i)]; n != 1 {
				t.Fatalf("x:%d was told %d times", i, n)
			}
		}
	})
}
