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

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
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

// tokenCall is a call with a progress token.
func tokenCall(id, name string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":{},"_meta":{"progressToken":1}}}`
}

// The end of a session ends its calls as if they were cancelled, whichever way they
// came, and whether their client still waits or has left. Nobody else can end them.
func TestN2DeleteEndsTheCallsOfASession(t *testing.T) {
	w, began, cancelled := gated(t)
	f := w.front(t, httpfront.Settings{Verify: tokens})
	session := f.initialize(t, bearer("ann")...)
	with := bearer("ann", "Mcp-Session-Id", session)
	for _, body := range []string{call(7, "waits"), tokenCall("8", "waits")} {
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
	settings := httpfront.Settings{Verify: tokens, Callers: map[string]string{"ann": "1", "bob": "1"}}
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
		{tokenCall("8", "waits"), bearer("ann", "Mcp-Session-Id", sessions["ann"])},
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
	settings := httpfront.Settings{Verify: tokens, Callers: map[string]string{"ann": "1", "bob": "1"}}
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
			f := w.front(t, httpfront.Settings{Verify: tokens, MaxSessions: most})
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

// A subscription of the stateless era is one in that era only: elsewhere, nobody would
// count it as a stream, and a batch or a session could have any number of them.
func TestN2NoStreamGoesUncounted(t *testing.T) {
	const listen = `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}%s}}`
	newest := `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	session := []string{"Mcp-Session-Id", f.initialize(t), "Mcp-Protocol-Version", "2025-11-25"}
	for _, headers := range [][]string{nil, {"Mcp-Protocol-Version", "2025-03-26"}, session} {
		for _, body := range []string{fmt.Sprintf(listen, ""), "[" + fmt.Sprintf(listen, "") + "]", fmt.Sprintf(listen, newest)} {
			if r := f.post(t, body, headers...); !r.failed {
				t.Errorf("with %s, %s is answered with %d %s", headers, body, r.status, r.raw)
			}
		}
	}
	s := f.openSSE(t)
	s.post(t, initialize("2024-11-05"))
	s.next(t)
	s.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, more := range []string{"", newest} {
		s.post(t, fmt.Sprintf(listen, more))
		if r := s.next(t); !r.failed {
			t.Errorf("over SSE, the answer is %s", r.raw)
		}
	}
}

// Beside another caller, one has as many requests worked on at a time as half of the
// processors can. Those that take longer than a moment wait for something, and keep no
// other from beginning.
func TestN2OneCallersRequestsDoNotTakeAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun, release := make(chan string, 100), make(chan struct{})
		w.raw("echo", func(_ context.Context, call peer.Call) (json.RawMessage, error) {
			begun <- call.Caller
			if call.Caller == "ann" {
				<-release
			}
			return json.RawMessage(`{"content":[]}`), nil
		})
		h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens, Loopback: true})
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

// The same holds for messages to streams of SSE, and a large one counts for longer.
func TestN2OneCallersStreamsDoNotTakeAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun, release := make(chan string, 100), make(chan struct{})
		w.raw("echo", func(_ context.Context, call peer.Call) (json.RawMessage, error) {
			begun <- call.Caller
			<-release
			return json.RawMessage(`{"content":[]}`), nil
		})
		h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens, Loopback: true})
		ctx, hangUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		do := func(method, path, caller, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
			for i, headers := 0, bearer(caller, "Content-Type", "application/json"); i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			out := httptest.NewRecorder()
			all.Go(func() { h.ServeHTTP(out, r) })
			synctest.Wait()
			return out
		}
		open := func(caller string) (endpoint string) {
			_, endpoint, _ = strings.Cut(do(http.MethodGet, "/sse", caller, "").Body.String(), "data: ")
			endpoint = strings.TrimSpace(endpoint)
			do(http.MethodPost, endpoint, caller, initialize("2024-11-05"))
			do(http.MethodPost, endpoint, caller, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			return endpoint
		}
		half := max(1, runtime.NumCPU()/2)
		var streams []string
		for range half + 3 {
			streams = append(streams, open("ann"))
		}
		do(http.MethodPost, open("bob"), "bob", call(1, "echo"))
		for _, endpoint := range streams { // 25 KiB are three moments
			do(http.MethodPost, endpoint, "ann", call(1, "echo")+strings.Repeat(" ", 25<<10))
		}
		for range 3 {
			if n := len(begun); n != 1+half {
				t.Errorf("%d calls of one caller are worked on, want %d", n-1, half)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(begun); n != 1+len(streams) {
			t.Errorf("%d calls have begun in the end, want all", n-1)
		}
		close(release)
		synctest.Wait()
		hangUp()
		all.Wait()
	})
}

// A batch counts for longer than a message of its size: each of its messages is a request.
func TestN2ABatchCountsForLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun, release := make(chan string, 100), make(chan struct{})
		w.raw("echo", func(_ context.Context, call peer.Call) (json.RawMessage, error) {
			begun <- call.Caller
			<-release
			return json.RawMessage(`{"content":[]}`), nil
		})
		h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens, Loopback: true})
		var posts sync.WaitGroup
		post := func(caller, body string) {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
			for i, headers := 0, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json"); i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			posts.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			synctest.Wait()
		}
		post("bob", call(1, "echo"))
		half := max(1, runtime.NumCPU()/2)
		for range half + 1 {
			post("ann", "["+call(1, "echo")+strings.Repeat(" ", 3<<10)+"]") // four moments
		}
		for range 4 {
			if n := len(begun); n != 1+half {
				t.Errorf("%d batches of one caller are worked on, want %d", n-1, half)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
		}
		if n := len(begun); n != 2+half {
			t.Errorf("%d batches have begun in the end, want all", n-1)
		}
		close(release)
		posts.Wait()
	})
}
