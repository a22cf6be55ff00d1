package wishes_test

import (
	"fmt"
	"testing"

	"github.com/orla-project/orla/capsule/wishes"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// What clients have asked for is bounded.
func TestSubscriptionsAreBounded(t *testing.T) {
	w := wishes.New()
	for i := range 3 * wishes.MaxSubscribed {
		if _, ok := w.Remember(peer.Request{Method: "resources/subscribe", Params: fmt.Appendf(nil, `{"uri":"x:%d"}`, i)}); ok != (i < wishes.MaxSubscribed) {
			t.Fatalf("subscription %d is taken: %v", i, ok)
		}
	}
	if n := len(w.Followed()); n != wishes.MaxSubscribed {
		t.Errorf("%d are remembered, want %d", n, wishes.MaxSubscribed)
	}
}
