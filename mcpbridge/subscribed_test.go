package mcpbridge_test

import (
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge"
)

func subscribe(t *testing.T, c *mcp.ClientSession, uri string) {
	t.Helper()
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Error(err)
	}
}

func unsubscribe(t *testing.T, c *mcp.ClientSession, uri string) {
	t.Helper()
	if err := c.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Error(err)
	}
}

// A subscription of a session that begins while those that are gone are swept stands.
func TestASubscriptionThatBeginsDuringASweep(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	f := w.front(t, mcpbridge.HTTPSettings{})
	var begun atomic.Bool
	begin := func() {
		if !begun.Swap(true) {
			subscribe(t, f.connect(t, "2025-11-25", nil), "mem://a")
		}
	}
	w.bridge.OnLiving(func(_, subscriptions bool) {
		if subscriptions {
			begin()
		}
	})
	w.bridge.DropSubscriptions(t.Context())
	begin() // it was not let before
	if told := s.asked("resources/unsubscribe"); len(told) != 0 {
		t.Errorf("the peer was told %q", told)
	}
}

// What a session has left behind is swept.
func TestSubscriptionsOfSessionsThatAreGone(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	f := w.front(t, mcpbridge.HTTPSettings{})
	gone, stays := f.connect(t, "2025-11-25", nil), f.connect(t, "2025-11-25", nil)
	subscribe(t, gone, "mem://a")
	subscribe(t, gone, "mem://b")
	subscribe(t, stays, "mem://b")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	w.bridge.DropSubscriptions(t.Context())
	if told := s.asked("resources/unsubscribe"); len(told) != 1 || told[0] != `resources/unsubscribe {"uri":"mem://a"}` {
		t.Errorf("the peer was told %q", told)
	}
}
