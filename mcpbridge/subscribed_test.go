package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/mcpbridge"
)

func subscribe(t *testing.T, c *mcp.ClientSession, uri string) {
	t.Helper()
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Error(err)
	}
}

// unsubscribe has a client not follow mem://a any more.
func unsubscribe(t *testing.T, c *mcp.ClientSession) {
	t.Helper()
	if err := c.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "mem://a"}); err != nil {
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

// A peer hears of a resource one word at a time, and the last one is true,
// whoever comes and goes.
func TestTheLastWordOnAResource(t *testing.T) {
	s := newPeer(everything())
	var words atomic.Int32
	var subscribed, overlap atomic.Bool
	s.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
		if words.Add(1) > 1 {
			overlap.Store(true)
		}
		for range 10 {
			runtime.Gosched() // others may come
		}
		subscribed.Store(req.Method == "resources/subscribe")
		words.Add(-1)
		return json.RawMessage(`{}`), nil
	}
	w := served(t, s)
	f := w.front(t, mcpbridge.HTTPSettings{})
	var all []*mcp.ClientSession
	for range 6 {
		all = append(all, f.connect(t, "2025-11-25", nil))
	}
	for round := range 20 {
		stays := round % 2 // so many clients go on following
		var over sync.WaitGroup
		for i, c := range all {
			over.Go(func() {
				subscribe(t, c, "mem://a")
				if i >= stays {
					unsubscribe(t, c)
				}
			})
		}
		over.Wait()
		if subscribed.Load() != (stays > 0) || overlap.Load() {
			t.Fatalf("round %d: %d follow it, the peer takes it for followed: %v; two words at once: %v", round, stays, subscribed.Load(), overlap.Load())
		}
		unsubscribe(t, all[0])
	}
	if n := w.bridge.Subscriptions(); n != 0 {
		t.Errorf("%d resources are kept that nobody follows", n)
	}
}

// Who leaves while another's subscription is on its way leaves nothing behind
// when that one fails.
func TestASubscriptionThatFailsLast(t *testing.T) {
	s, began, _ := slowPeer("resources/subscribe")
	slow := s.answer
	first := true // of one client, which is not slow
	s.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
		if first {
			first = false
			return json.RawMessage(`{}`), nil
		}
		return slow(ctx, req)
	}
	w := served(t, s)
	f := w.front(t, mcpbridge.HTTPSettings{})
	one, two := f.connect(t, "2025-11-25", nil), f.connect(t, "2025-11-25", nil)
	subscribe(t, one, "mem://a")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = two.Subscribe(ctx, &mcp.SubscribeParams{URI: "mem://a"})
	}()
	within(t, began, "word to the peer")
	unsubscribe(t, one)
	cancel()
	<-over
	eventually(t, "the peer is told that nobody follows it", func() bool { return len(s.asked("resources/unsubscribe")) == 1 })
	eventually(t, "nothing of it is kept", func() bool { return w.bridge.Subscriptions() == 0 })
}

// A refusal is no subscription that would have to be ended.
func TestARefusedSubscription(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(context.Context, peer.Request) (json.RawMessage, error) {
		return nil, &jsonrpc.Error{Code: -32602, Message: "not found"}
	}
	w := served(t, s)
	c := w.front(t, mcpbridge.HTTPSettings{}).connect(t, "2025-11-25", nil)
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err == nil {
		t.Error("it is granted")
	}
	if told := s.asked("resources/unsubscribe"); len(told) != 0 || w.bridge.Subscriptions() != 0 {
		t.Errorf("the peer was told %q, and %d are kept", told, w.bridge.Subscriptions())
	}
}

// following are options of a client that notes of what it hears.
func following(heard chan string) *mcp.ClientOptions {
	return &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { heard <- r.Params.URI }}
}

// Subscriptions are bounded by caller and session: one that follows all it can
// leaves room for others, and what it followed is free again when it has ended. A
// long URI is refused.
func TestN2SubscriptionsAreShared(t *testing.T) {
	s := newPeer(everything())
	f := served(t, s).front(t, mcpbridge.HTTPSettings{Verify: tokens})
	subscribe := func(name, session, uri string) reply {
		return f.post(t, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`, bearer(name, "Mcp-Session-Id", session)...)
	}
	greedy := f.initialize(t, bearer("ann")...)
	if r := subscribe("ann", greedy, "mem://"+strings.Repeat("x", 5000)); r.code != -32602 || !strings.Contains(r.text, "4096 bytes") {
		t.Errorf("a long URI: %.300s", r.raw)
	}
	n := 0
	for ; n < 4096; n++ {
		if r := subscribe("ann", greedy, fmt.Sprint("mem://a/", n)); r.failed {
			if !strings.Contains(r.text, "too many subscriptions") || !strings.Contains(r.raw, "rate_limited") {
				t.Errorf("subscription %d: %s", n, r.raw)
			}
			break
		}
	}
	if n < 500 || n > 2048 {
		t.Errorf("one session follows %d resources", n)
	}
	other := f.initialize(t, bearer("bob")...)
	for i := range 100 {
		if r := subscribe("bob", other, fmt.Sprint("mem://b/", i)); r.failed {
			t.Fatalf("another caller follows only %d: %s", i, r.raw)
		}
	}
	f.send(t, http.MethodDelete, "/mcp", "", bearer("ann", "Mcp-Session-Id", greedy)...)
	if r := subscribe("ann", f.initialize(t, bearer("ann")...), "mem://a/again"); r.failed {
		t.Errorf("after the end of the session: %s", r.raw)
	}
}
