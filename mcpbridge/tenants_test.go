package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// gated is a world whose tool waits until its call is cancelled, and a channel that
// receives once for each call that was.
func gated(t *testing.T) (w *world, began, cancelled chan struct{}) {
	w = newWorld(t)
	began, cancelled = make(chan struct{}, 100), make(chan struct{}, 100)
	w.answer("waits", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		began <- struct{}{}
		<-ctx.Done()
		cancelled <- struct{}{}
		return nil, context.Cause(ctx)
	})
	w.set(tool("echo"), tool("waits"))
	return w, began, cancelled
}

// bearer are the headers of a caller.
func bearer(name string, more ...string) []string {
	return append([]string{"Authorization", "Bearer " + name}, more...)
}

// sdkCall is a call that goes the SDK's way, since it has a progress token.
func sdkCall(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{},"_meta":{"progressToken":1}}}`
}

// The end of a session ends its calls as if they were cancelled, whichever way they
// came, and whether their client still waits or has left. Nobody else can end them.
func TestC18DeleteEndsTheCallsOfASession(t *testing.T) {
	w, began, cancelled := gated(t)
	f := w.front(t, mcpbridge.HTTPSettings{Verify: tokens})
	session := f.initialize(t, bearer("ann")...)
	with := bearer("ann", "Mcp-Session-Id", session)
	for _, body := range []string{call(7, "waits"), sdkCall("8", "waits")} {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/mcp", strings.NewReader(body))
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(with); i += 2 {
				req.Header.Set(with[i], with[i+1])
			}
			if res, err := f.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		within(t, began, "beginning of a call")
	}
	f.send(t, http.MethodDelete, "/mcp", "", bearer("bob", "Mcp-Session-Id", session)...)
	select {
	case <-cancelled:
		t.Error("another caller has ended a call")
	default:
	}
	f.send(t, http.MethodDelete, "/mcp", "", with...)
	within(t, cancelled, "end of a call")
	within(t, cancelled, "end of the other call")
	eventually(t, "the session is not counted any more", func() bool { return f.Sessions() == 0 })
}

// A caller whose token is removed, or changed, keeps nothing: its calls and streams
// end, its sessions are not found, and what was kept for it is gone. Others notice nothing.
func TestN2ARemovedTokenEndsEverything(t *testing.T) {
	w, began, cancelled := gated(t)
	settings := mcpbridge.HTTPSettings{Verify: tokens, Callers: map[string]string{"ann": "1", "bob": "1"}}
	f := w.front(t, settings)
	sessions := map[string]string{}
	streams := map[string][]*opened{}
	for _, name := range []string{"ann", "bob"} {
		session := f.initialize(t, bearer(name)...)
		sessions[name] = session
		with := bearer(name, "Mcp-Session-Id", session)
		listen, headers := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
		streams[name] = []*opened{
			f.open(t, http.MethodGet, "/mcp", nil, with...),
			f.open(t, http.MethodGet, "/sse", nil, bearer(name)...),
			f.open(t, http.MethodPost, "/mcp", strings.NewReader(listen), append(headers, bearer(name)...)...),
		}
		for i, s := range streams[name] {
			if s.status != http.StatusOK {
				t.Fatalf("stream %d is refused with %d", i, s.status)
			}
		}
	}
	calls := make(chan struct{}, 10)
	stateless, headers := newEra("tools/call", "waits", `"name":"waits","arguments":{}`)
	for _, c := range []struct {
		body    string
		headers []string
	}{
		{call(7, "waits"), bearer("ann", "Mcp-Session-Id", sessions["ann"])},
		{sdkCall("8", "waits"), bearer("ann", "Mcp-Session-Id", sessions["ann"])},
		{stateless, append(headers, bearer("ann")...)},
	} {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/mcp", strings.NewReader(c.body))
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(c.headers); i += 2 {
				req.Header.Set(c.headers[i], c.headers[i+1])
			}
			if res, err := f.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
			calls <- struct{}{}
		}()
		within(t, began, "beginning of a call")
	}
	settings.Callers = map[string]string{"ann": "2", "bob": "1"} // another value, so that the test can still ask as ann
	f.Configure(settings)
	for range 3 {
		within(t, cancelled, "end of a call at the tool")
		within(t, calls, "end of a call at the client")
	}
	for _, s := range streams["ann"] {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, s.body)
		}()
		within(t, ended, "end of a stream")
	}
	if r := f.post(t, call(1, "echo"), bearer("ann", "Mcp-Session-Id", sessions["ann"])...); r.status != http.StatusNotFound {
		t.Errorf("the session of a removed token answers %d %s", r.status, r.raw)
	}
	if r := f.post(t, call(1, "echo"), bearer("bob", "Mcp-Session-Id", sessions["bob"])...); r.status != http.StatusOK || r.failed {
		t.Errorf("the session of another caller answers %d %s", r.status, r.raw)
	}
	if r := f.post(t, call(1, "echo"), bearer("ann", "Mcp-Session-Id", f.initialize(t, bearer("ann")...))...); r.status != http.StatusOK {
		t.Errorf("a new session with the new token answers %d %s", r.status, r.raw)
	}
	if n := f.Sessions(); n != 4 { // the other caller has three, and this one a new one
		t.Errorf("%d sessions and streams are open, want 4", n)
	}
}

// A kept answer is its caller's: nobody else can read it, and it goes with the token.
func TestN2AKeptAnswerIsItsCallers(t *testing.T) {
	w := newWorld(t, small)
	settings := mcpbridge.HTTPSettings{Verify: tokens, Callers: map[string]string{"ann": "1", "bob": "1"}}
	f := w.front(t, settings)
	w.gives(text(strings.Repeat("secret ", 100_000)), nil)
	session := map[string][]string{}
	for _, name := range []string{"ann", "bob"} {
		session[name] = bearer(name, "Mcp-Session-Id", f.initialize(t, bearer(name)...))
	}
	uri := func(name string) string {
		r := f.post(t, call(1, "echo"), session[name]...)
		found := regexp.MustCompile(`orla://answers/\w+`).FindString(r.raw)
		if found == "" {
			t.Fatalf("no link in %.300s", r.raw)
		}
		return found
	}
	reads := func(name, uri string) bool {
		r := f.post(t, `{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"`+uri+`"}}`, session[name]...)
		return strings.Contains(r.raw, "secret")
	}
	ofAnn, ofBob := uri("ann"), uri("bob")
	if !reads("ann", ofAnn) || reads("bob", ofAnn) || reads("bob", ofAnn+"/0/100") {
		t.Errorf("ann reads hers: %v, and bob: %v", reads("ann", ofAnn), reads("bob", ofAnn))
	}
	settings.Callers = map[string]string{"ann": "2", "bob": "1"}
	f.Configure(settings)
	session["ann"] = bearer("ann", "Mcp-Session-Id", f.initialize(t, bearer("ann")...))
	if reads("ann", ofAnn) || !reads("bob", ofBob) {
		t.Errorf("after the change of a token it reads the old answer: %v, and the other caller its own: %v", reads("ann", ofAnn), reads("bob", ofBob))
	}
}

// Streams count as sessions, whichever kind they are. A caller that has taken all of
// them gets no more, and makes room for another caller that has less than its share.
func TestN2StreamsCountAsSessions(t *testing.T) {
	const most = 20
	listen, headers := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
	for kind, open := range map[string]func(t *testing.T, f *front) *opened{
		"subscriptions/listen": func(t *testing.T, f *front) *opened {
			return f.open(t, http.MethodPost, "/mcp", strings.NewReader(listen), append(headers, bearer("ann")...)...)
		},
		"SSE": func(t *testing.T, f *front) *opened { return f.open(t, http.MethodGet, "/sse", nil, bearer("ann")...) },
		"GET": func(t *testing.T, f *front) *opened {
			r := f.post(t, initialize("2025-11-25"), bearer("ann")...)
			if r.status != http.StatusOK {
				return &opened{status: r.status}
			}
			return f.open(t, http.MethodGet, "/mcp", nil, bearer("ann", "Mcp-Session-Id", r.header.Get("Mcp-Session-Id"))...)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			f := w.front(t, mcpbridge.HTTPSettings{Verify: tokens, MaxSessions: most})
			for i := range most {
				if s := open(t, f); s.status != http.StatusOK {
					t.Fatalf("stream %d is refused with %d", i, s.status)
				}
			}
			if n := f.Sessions(); n != most {
				t.Errorf("%d sessions and streams are open, want %d", n, most)
			}
			if s := open(t, f); s.status != http.StatusServiceUnavailable {
				t.Errorf("a stream more gets %d, want 503", s.status)
			}
			session := f.initialize(t, bearer("bob")...)
			if r := f.post(t, call(1, "echo"), bearer("bob", "Mcp-Session-Id", session)...); r.status != http.StatusOK {
				t.Errorf("another caller's session answers %d", r.status)
			}
			if n := f.Sessions(); n > most {
				t.Errorf("%d sessions and streams are open, want %d at most", n, most)
			}
		})
	}
}

// Beside another caller, one has as many requests worked on at a time as half of the
// processors can. Those that take longer than a moment wait for something, and keep no
// other from beginning.
func TestN2OneCallersRequestsDoNotTakeAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun, release := make(chan string, 100), make(chan struct{})
		w.raw("echo", func(_ context.Context, call supervisor.Call) (json.RawMessage, error) {
			begun <- call.Caller
			if call.Caller == "ann" {
				<-release
			}
			return json.RawMessage(`{"content":[]}`), nil
		})
		h := w.bridge.HTTP(mcpbridge.HTTPSettings{Verify: tokens, Loopback: true})
		var posts sync.WaitGroup
		post := func(caller string) {
			posts.Go(func() {
				body, headers := newEra("tools/call", "echo", `"name":"echo","arguments":{}`)
				r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
				for i, all := 0, append(headers, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json")...); i < len(all); i += 2 {
					r.Header.Set(all[i], all[i+1])
				}
				out := httptest.NewRecorder()
				if h.ServeHTTP(out, r); out.Code != http.StatusOK {
					t.Errorf("%s got %d %s", caller, out.Code, out.Body)
				}
			})
			synctest.Wait()
		}
		post("bob")
		<-begun
		for range 50 {
			post("ann")
		}
		half := max(1, runtime.NumCPU()/2)
		if n := len(begun); n != half {
			t.Errorf("%d calls of one caller are worked on, want %d", n, half)
		}
		post("bob")
		if n := len(begun); n != half+1 {
			t.Errorf("another caller's call has to wait")
		}
		time.Sleep(time.Second) // in a bubble
		synctest.Wait()
		if n := len(begun); n != 51 {
			t.Errorf("%d calls have begun in the end, want all", n)
		}
		close(release)
		posts.Wait()
	})
}

// Which clients have been found in order is remembered for each caller: one with very many
// does not have the library look at another's requests again.
func TestN2OneCallersClientsAreNotForgottenForAnother(t *testing.T) {
	m := mcpbridge.NewMetas()
	meta := func(n int) string {
		return fmt.Sprintf(`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"%d"}}`, n)
	}
	m.Learn("bob", meta(0))
	for n := range 10_000 {
		m.Learn("ann", meta(n))
	}
	if !m.Knows("bob", meta(0)) || !m.Knows("ann", meta(9_999)) {
		t.Errorf("bob's is known: %v, and ann's last one: %v", m.Knows("bob", meta(0)), m.Knows("ann", meta(9_999)))
	}
	if m.Knows("carl", meta(0)) {
		t.Error("a caller is known by another's")
	}
}
