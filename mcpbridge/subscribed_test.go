package mcpbridge_test

import (
	"bufio"
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

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
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

// What a session has left behind is given up.
func TestSubscriptionsOfSessionsThatAreGone(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	f := w.front(t, httpfront.Settings{})
	gone, stays := f.connect(t, "2025-11-25", nil), f.connect(t, "2025-11-25", nil)
	subscribe(t, gone, "mem://a")
	subscribe(t, gone, "mem://b")
	subscribe(t, stays, "mem://b")
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the peer is told", func() bool { return w.bridge.FollowedResources() == 1 })
	if told := s.asked("resources/unsubscribe"); len(told) != 1 || told[0] != `resources/unsubscribe {"uri":"mem://a"}` {
		t.Errorf("the peer was told %q", told)
	}
}

// Who leaves a resource that others go on following gives back its share at once: their
// peer has nothing to be told.
func TestN2WhatOthersStillFollowIsFree(t *testing.T) {
	s := newPeer(everything())
	w := served(t, s)
	f := w.front(t, httpfront.Settings{})
	free := w.bridge.FreeSubscriptions()
	stays := f.connect(t, "2025-11-25", nil)
	subscribe(t, stays, "mem://a")
	for range 3 {
		gone := f.connect(t, "2025-11-25", nil)
		subscribe(t, gone, "mem://a")
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
	}
	body, headers := newEra("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["mem://a"]}`)
	stream := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...)
	(&rawSSE{f: f, scan: bufio.NewScanner(stream.body)}).data(t)
	if err := stream.body.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only who stays counts", func() bool { return w.bridge.FreeSubscriptions() == free-1 })
	if told := s.asked("resources/unsubscribe"); len(told) != 0 {
		t.Errorf("the peer was told %q, though somebody follows it", told)
	}
	unsubscribe(t, stays)
	if got := w.bridge.FreeSubscriptions(); got != free {
		t.Errorf("%d of %d are free when nobody follows anything", got, free)
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
	f := w.front(t, httpfront.Settings{})
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
	if n := w.bridge.FollowedResources(); n != 0 {
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
	f := w.front(t, httpfront.Settings{})
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
	eventually(t, "nothing of it is kept", func() bool { return w.bridge.FollowedResources() == 0 })
}

// A subscription that was refused does not have to be ended.
func TestARefusedSubscription(t *testing.T) {
	s := newPeer(everything())
	s.answer = func(context.Context, peer.Request) (json.RawMessage, error) {
		return nil, &jsonrpc.Error{Code: -32602, Message: "not found"}
	}
	w := served(t, s)
	c := w.front(t, httpfront.Settings{}).connect(t, "2025-11-25", nil)
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err == nil {
		t.Error("it is granted")
	}
	if told := s.asked("resources/unsubscribe"); len(told) != 0 || w.bridge.FollowedResources() != 0 {
		t.Errorf("the peer was told %q, and %d are kept", told, w.bridge.FollowedResources())
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
	f := served(t, s).front(t, httpfront.Settings{Verify: tokens})
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
	again := f.initialize(t, bearer("ann")...)
	eventually(t, "there is room after the end of the session", func() bool { return !subscribe("ann", again, "mem://a/again").failed })
}

// SPEC N2, S1: a long URI counts for more, as it is passed on again and again. It is free again when nobody
// follows it.
func TestN2LongSubscriptionsCountForMore(t *testing.T) {
	const long = 4000
	w := served(t, newPeer(everything()))
	f := w.front(t, httpfront.Settings{Verify: tokens})
	free := w.bridge.FreeSubscriptions()
	n, sessions := 0, []string(nil)
	for range 4 {
		session := f.initialize(t, bearer("ann")...)
		for refused := false; !refused && n < 1000; {
			r := f.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"mem://%d/%s"}}`, n, strings.Repeat("x", long)), bearer("ann", "Mcp-Session-Id", session)...)
			if refused = r.failed; !refused {
				n++
			}
		}
		sessions = append(sessions, session)
	}
	if n == 0 || n*long > 512<<10 {
		t.Errorf("one caller has %d bytes of URIs followed", n*long)
	}
	for _, session := range sessions {
		f.send(t, http.MethodDelete, "/mcp", "", bearer("ann", "Mcp-Session-Id", session)...)
	}
	eventually(t, "all is free", func() bool { return w.bridge.FreeSubscriptions() == free })
}

// A peer counts a subscription as that of the client that asks for it, as it does a read: what
// it says of the subscription must reach no other client.
func TestN2ASubscriptionIsItsClients(t *testing.T) {
	s := newPeer(everything())
	var mu sync.Mutex
	who := map[string]string{} // by URI
	s.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		session := req.Session
		if req.Client != nil {
			session = req.Client.Session()
		}
		who[req.Method+string(req.Params)] = session
		return json.RawMessage(`{"contents":[]}`), nil
	}
	f := served(t, s).front(t, httpfront.Settings{Verify: tokens})
	seen := map[string]bool{}
	for _, name := range []string{"ann", "bob"} {
		session := f.initialize(t, bearer(name)...)
		for _, method := range []string{"subscribe", "read", "unsubscribe"} {
			f.post(t, `{"jsonrpc":"2.0","id":1,"method":"resources/`+method+`","params":{"uri":"mem://`+name+`"}}`, bearer(name, "Mcp-Session-Id", session)...)
		}
		uri := `mem://stream/` + name
		body, headers := newEra("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["`+uri+`"]}`)
		res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), append(headers, bearer(name)...)...)
		(&rawSSE{f: f, scan: bufio.NewScanner(res.body)}).data(t)
		body, headers = newEra("resources/read", uri, `"uri":"`+uri+`"`)
		f.post(t, body, append(headers, bearer(name)...)...)
		mu.Lock()
		for _, uri := range []string{"mem://" + name, uri} {
			params := `{"uri":"` + uri + `"}`
			read := who["resources/read"+params]
			if read == "" || seen[read] {
				t.Errorf("%s is read by %q, as something else is", uri, read)
			}
			seen[read] = true
			if got := who["resources/subscribe"+params]; got != read {
				t.Errorf("%s is followed by %q and read by %q", uri, got, read)
			}
		}
		if got, want := who[`resources/unsubscribe{"uri":"mem://`+name+`"}`], who[`resources/read{"uri":"mem://`+name+`"}`]; got != want {
			t.Errorf("mem://%s is left by %q and read by %q", name, got, want)
		}
		mu.Unlock()
	}
}

// What a session that has ended followed counts as its caller's until the peer has been told:
// a peer that does not listen holds up nobody else.
func TestN2WhatNobodyFollowsCountsUntilItsPeerKnows(t *testing.T) {
	s := newPeer(everything())
	over := make(chan struct{})
	var mu sync.Mutex
	said := map[string]string{} // whose word it is, by URI
	s.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
		if req.Method == "resources/unsubscribe" {
			mu.Lock()
			said[string(req.Params)] = req.Owner.Caller
			mu.Unlock()
			if strings.Contains(string(req.Params), "mem://a/") {
				<-over // longer than the bridge waits: what is given up is not counted any more
				return nil, ctx.Err()
			}
		}
		return json.RawMessage("{}"), nil
	}
	w := served(t, s)
	f := w.front(t, httpfront.Settings{Verify: tokens})
	defer close(over)
	ask := func(name, session, method, uri string) reply {
		return f.post(t, `{"jsonrpc":"2.0","id":1,"method":"resources/`+method+`","params":{"uri":"`+uri+`"}}`, bearer(name, "Mcp-Session-Id", session)...)
	}
	followed := 0
	long := strings.Repeat("x", 4000) // each counts for 16, so that the peer is not given up before all are refused
	for refused := false; !refused && followed < 300; {
		session := f.initialize(t, bearer("ann")...)
		for range 30 {
			if refused = ask("ann", session, "subscribe", fmt.Sprint("mem://a/", followed, "/", long)).failed; refused {
				break
			}
			followed++
		}
		f.send(t, http.MethodDelete, "/mcp", "", bearer("ann", "Mcp-Session-Id", session)...)
	}
	if followed > 130 {
		t.Errorf("%d resources are followed, or wait for their peer", followed)
	}
	other := f.initialize(t, bearer("bob")...)
	for _, method := range []string{"subscribe", "unsubscribe"} {
		if r := ask("bob", other, method, "mem://b"); r.failed {
			t.Errorf("%s of another: %s", method, r.raw)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for params, caller := range said {
		if want := map[bool]string{true: "ann", false: "bob"}[strings.Contains(params, "mem://a/")]; caller != want {
			t.Errorf("%s is the word of %q", params, caller)
		}
	}
}

// What the streams of the stateless era follow counts for their caller too, and a URI that
// stands there often counts, and is subscribed to, once.
func TestN2SubscriptionsOfTheNewestEraAreShared(t *testing.T) {
	s := newPeer(everything())
	f := served(t, s).front(t, httpfront.Settings{Verify: tokens})
	follow := func(name string, from, n int) string {
		uris := make([]string, n)
		for i := range uris {
			uris[i] = fmt.Sprintf(`"mem://%s/%d"`, name, from+i)
		}
		body, headers := newEra("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":[`+strings.Join(append(uris, uris...), ",")+`]}`)
		res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), append(headers, bearer(name)...)...)
		return (&rawSSE{f: f, scan: bufio.NewScanner(res.body)}).data(t)
	}
	all := 0
	for refused := false; !refused && all < 4096; all += 100 {
		refused = strings.Contains(follow("ann", all, 100), "too many subscriptions")
	}
	if all < 1000 || all > 2200 {
		t.Errorf("a caller's streams follow %d resources", all)
	}
	if told := len(s.asked("resources/subscribe")); told > all {
		t.Errorf("the peer was told %d times of %d resources", told, all)
	}
	if got := follow("bob", 0, 100); !strings.Contains(got, "acknowledged") {
		t.Errorf("another caller gets %s", got)
	}
}
