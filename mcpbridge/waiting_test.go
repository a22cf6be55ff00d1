package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// Requests of sessions go on when their clients have left. Those that wait for something
// before they are passed on count among the calls in flight: one session has so many and
// no more, and leaves room to others (SPEC N2, S2).
func TestN2RequestsThatWaitForATurnAreBounded(t *testing.T) {
	needs.Time(t, "makes thousands of calls")
	const sent, most = 2200, 2048 // a session alone has half of what its caller may have
	unknown := func(s *fakePeer) {
		offers := everything()
		offers.Known = false
		s.offer(offers)
	}
	for _, c := range []struct {
		name, params string
		prepare      func(s *fakePeer) // nil for nothing
		first        string            // a request that is answered before
	}{
		{name: "resources/subscribe", params: `{"uri":"mem://a"}`},
		{name: "resources/unsubscribe", params: `{"uri":"mem://a"}`, first: `{"jsonrpc":"2.0","id":"first","method":"resources/subscribe","params":{"uri":"mem://a"}}`},
		{name: "logging/setLevel", params: `{"level":"debug"}`},
		{name: "tools/list", params: `{}`, prepare: unknown},
		{name: "tools/call", params: `{"name":"later"}`, prepare: unknown},
		{name: "prompts/get", params: `{"name":"later"}`, prepare: unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(everything())
				s.answer = func(ctx context.Context, req peer.Request) (json.RawMessage, error) {
					if req.Method != c.name {
						return json.RawMessage(`{}`), nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				if c.prepare != nil {
					c.prepare(s)
				}
				w := served(t, s)
				h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens, Loopback: true})
				ctx, leave := context.WithCancel(t.Context())
				post := func(caller, session, body string) *httptest.ResponseRecorder {
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
					for i, all := 0, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json"); i < len(all); i += 2 {
						r.Header.Set(all[i], all[i+1])
					}
					if session != "" {
						r.Header.Set("Mcp-Session-Id", session)
					}
					out := httptest.NewRecorder()
					h.ServeHTTP(out, r)
					return out
				}
				begin := func(caller string) string {
					return post(caller, "", initialize("2025-11-25")).Header().Get("Mcp-Session-Id")
				}
				session := begin("ann")
				if c.first != "" {
					if out := post("ann", session, c.first); out.Code != http.StatusOK {
						t.Fatalf("%d %s", out.Code, out.Body)
					}
				}
				body := func(id int) string {
					return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, c.name, c.params)
				}
				var open, refused atomic.Int64
				var all sync.WaitGroup
				for i := range sent {
					open.Add(1)
					all.Go(func() {
						defer open.Add(-1)
						if out := post("ann", session, body(i)); strings.Contains(out.Body.String(), "rate_limited") {
							refused.Add(1)
						}
					})
				}
				synctest.Wait()
				leave() // their requests go on
				synctest.Wait()
				if n := open.Load(); n < most/2 || n > most+1 {
					t.Errorf("%d requests of a session wait", n)
				}
				if heard := c.name == "resources/unsubscribe" || c.name == "logging/setLevel"; !heard && refused.Load() < sent-most-1 {
					t.Errorf("%d are refused", refused.Load()) // who tells the peer hears the others without a wait
				}
				ctx, leave = context.WithCancel(t.Context())
				defer leave()
				others := begin("bob")
				all.Go(func() {
					if out := post("bob", others, strings.ReplaceAll(body(1), "mem://a", "mem://b")); strings.Contains(out.Body.String(), "rate_limited") {
						t.Errorf("another caller: %s", out.Body)
					}
				})
				synctest.Wait()
				s.offer(everything()) // what waits for it goes on; the others give up in their time
				all.Wait()
			})
		})
	}
}

// Who follows a resource waits for one turn of each other caller that follows it too, however
// many requests those have sent (SPEC N2).
func TestN2OneCallersSubscriptionsDelayOthersByOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sent = 50
		s := newPeer(everything())
		turn := make(chan struct{})
		s.answer = func(_ context.Context, req peer.Request) (json.RawMessage, error) {
			if req.Method == "resources/subscribe" {
				<-turn
			}
			return json.RawMessage(`{}`), nil
		}
		h := httpfront.New(served(t, s).bridge, httpfront.Settings{Verify: tokens, Loopback: true})
		post := func(caller, session, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
			for i, all := 0, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json", "Mcp-Session-Id", session); i < len(all); i += 2 {
				r.Header.Set(all[i], all[i+1])
			}
			out := httptest.NewRecorder()
			h.ServeHTTP(out, r)
			return out
		}
		var all sync.WaitGroup
		var answered atomic.Bool // bob's request
		follow := func(caller string, n int) {
			session := post(caller, "", initialize("2025-11-25")).Header().Get("Mcp-Session-Id")
			for i := range n {
				all.Go(func() {
					post(caller, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"mem://a"}}`, i))
					answered.CompareAndSwap(false, caller == "bob")
				})
			}
			synctest.Wait()
		}
		follow("ann", sent)
		follow("bob", 1)
		turns := 0
		for ; !answered.Load() && turns <= sent; turns++ {
			turn <- struct{}{}
			synctest.Wait()
		}
		if turns > 3 {
			t.Errorf("bob is answered after %d turns of %d of another caller", turns, sent)
		}
		close(turn)
		all.Wait()
	})
}
