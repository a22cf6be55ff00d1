package mcpbridge

import (
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC Q1, N2: a call that has asked its client something counts until its peer has answered it. A question that comes
// after that does not count, or no upgrade would find a moment without one.
func TestQ1ACallThatHasAskedCountsUntilItEnds(t *testing.T) {
	r := &Request{bridge: &Bridge{}, Message: &wire.Message{Method: wire.MethodCall}}
	counts := func(requests, waiting int) {
		t.Helper()
		if r, w := r.bridge.Asked(); r != requests || w != waiting {
			t.Errorf("%d requests have asked, and %d wait; want %d and %d", r, w, requests, waiting)
		}
	}
	first, second := r.Asking(), r.Asking()
	counts(1, 1)
	first()
	counts(1, 1)
	second()
	counts(1, 0)
	last := r.Asking()
	r.worked()
	counts(0, 1)
	late := r.Asking()
	counts(0, 1)
	last()
	late()
	counts(0, 0)
}
