package httpfront

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// sentFront is a front in a bubble that gets requests.
type sentFront struct {
	*Front

	requests sync.WaitGroup
}

// busy is who has the places.
var busy = turns.Owner{Caller: "busy"}

// newLightFront returns a front whose light requests have to wait.
func newLightFront() *sentFront {
	h := New(newBridge(), Settings{Verify: aToken, Loopback: true})
	h.Handle("/callbacks/{id}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }))
	for h.light.Try(busy) {
	}
	return &sentFront{Front: h}
}

// send begins a request, and returns a channel that is closed when it is answered.
func (f *sentFront) send(t *testing.T, want int, from, method, path, body string, headers ...string) <-chan struct{} {
	t.Helper()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = from + ":1000"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answered := make(chan struct{})
	f.requests.Go(func() {
		out := httptest.NewRecorder()
		f.ServeHTTP(out, r)
		close(answered)
		if out.Code != want {
			t.Errorf("%s %s %q is answered %d, want %d", method, path, headers, out.Code, want)
		}
	})
	synctest.Wait()
	return answered
}

// over reports whether a request is answered.
func over(answered <-chan struct{}) bool {
	select {
	case <-answered:
		return true
	default:
		return false
	}
}

// SPEC N2: each request that is refused or answered at once waits for its turn, whoever has
// sent it. A call does not wait for them.
func TestN2WhatIsAnsweredAtOnceWaitsForItsTurn(t *testing.T) {
	const json = "application/json"
	for name, c := range map[string]struct {
		want         int
		method, path string
		headers      []string
	}{
		"health":                {200, "GET", "/healthz", nil},
		"readiness":             {200, "GET", "/readyz", bearer("ann")},
		"not found":             {404, "GET", "/nothing", nil},
		"redirected":            {307, "GET", "//mcp", nil},
		"not allowed":           {405, "POST", "/healthz", nil},
		"callback":              {409, "POST", "/callbacks/1", nil},
		"no token":              {401, "POST", "/mcp", []string{"Content-Type", json}},
		"wrong token":           {401, "DELETE", "/mcp", bearer("eve")},
		"no token for metrics":  {401, "GET", "/metrics", nil},
		"no token for SSE":      {401, "GET", "/sse", nil},
		"another page":          {403, "POST", "/mcp", []string{"Origin", "https://evil.example"}},
		"preflight":             {204, "OPTIONS", "/mcp", []string{"Origin", "http://localhost"}},
		"no JSON":               {415, "POST", "/mcp", bearer("ann", "Content-Type", "text/plain")},
		"no session":            {404, "DELETE", "/mcp", bearer("ann", "Mcp-Session-Id", "x")},
		"stream of no session":  {404, "GET", "/mcp", bearer("ann", "Mcp-Session-Id", "x")},
		"no session is named":   {400, "GET", "/mcp", bearer("ann")},
		"another method":        {405, "PUT", "/mcp", bearer("ann")},
		"another method of SSE": {405, "PUT", "/sse", bearer("ann")},
		"metrics":               {404, "GET", "/metrics", bearer("ann")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newLightFront()
				answered := f.send(t, c.want, "127.0.0.2", c.method, c.path, "", c.headers...)
				if over(answered) || f.light.Waiting() != 1 {
					t.Errorf("it does not wait")
				}
				if called := f.send(t, 200, "127.0.0.2", "POST", "/mcp", echoCall, bearer("bob", posted...)...); !over(called) {
					t.Error("a call waits")
				}
				f.light.Give(busy)
				if synctest.Wait(); !over(answered) {
					t.Error("it is not answered in its turn")
				}
				if f.light.Free() != 0 {
					t.Error("its place is free at once")
				}
				time.Sleep(time.Second) // in a bubble
				if f.light.Free() != 1 {
					t.Error("its place is not free after a moment")
				}
				f.requests.Wait()
			})
		})
	}
}

// SPEC N2: so does a message to the transport of 2024-11-05, which is answered at once in any case.
func TestN2AMessageToSSEWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLightFront()
		answered := f.send(t, 404, "127.0.0.2", "POST", "/sse?sessionid=x", "{}", bearer("ann", "Content-Type", "application/json")...)
		if over(answered) || f.light.Waiting() != 1 {
			t.Errorf("it does not wait")
		}
		f.light.Give(busy)
		f.requests.Wait()
	})
}

// SPEC N2: a caller waits for one request of another caller's, and of all who have no token,
// however many those have sent from however many addresses; among them, addresses take turns.
func TestN2WhatIsAnsweredAtOnceIsSharedByCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLightFront()
		const many = 50
		for i := range many {
			f.send(t, 404, "127.0.0.2", "DELETE", "/mcp", "", bearer("ann", "Mcp-Session-Id", "x")...)
			f.send(t, 401, fmt.Sprintf("127.0.1.%d", i), "POST", "/mcp", "", "Content-Type", "application/json")
			f.send(t, 200, fmt.Sprintf("[2001:db8::%x]", i), "GET", "/healthz", "")
		}
		bob := f.send(t, 404, "127.0.0.2", "DELETE", "/mcp", "", bearer("bob", "Mcp-Session-Id", "x")...)
		health := f.send(t, 200, "[2001:db8:1::1]", "GET", "/healthz", "")
		turnsUntil := func(answered <-chan struct{}) (n int) {
			for ; !over(answered) && n < 10*many; n++ {
				time.Sleep(2 * time.Millisecond) // in a bubble
				synctest.Wait()
			}
			return n
		}
		f.light.Give(busy) // there is one place
		synctest.Wait()
		if n := turnsUntil(bob); n > 2 {
			t.Errorf("a caller waits for %d turns of two others", n)
		}
		// One turn of each address and of the network, and as many of ann's.
		if n := turnsUntil(health); n > 2*(many+2) {
			t.Errorf("an address waits for %d turns of %d others and of ann", n, many+1)
		}
		f.requests.Wait()
	})
}

// SPEC N2: a POST that is answered at once waits as well, while other callers are active. Where
// there are none, it does not.
func TestN2APostThatIsAnsweredAtOnceWaitsBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLightFront()
		post := func(want int, caller, body string) <-chan struct{} {
			return f.send(t, want, "127.0.0.2", "POST", "/mcp", body, bearer(caller, posted...)...)
		}
		if !over(post(200, "ann", aPing)) || !over(post(400, "ann", "{")) {
			t.Error("a caller waits that is alone")
		}
		for body, want := range map[string]int{aPing: 200, "{": 400, `{"jsonrpc":"2.0","method":"notifications/x"}`: 202} {
			answered := post(want, "bob", body) // ann was there lately
			if over(answered) {
				t.Errorf("%s does not wait", body)
			}
			f.light.Give(busy)
			if synctest.Wait(); !over(answered) {
				t.Errorf("%s is not answered in its turn", body)
			}
		}
		time.Sleep(time.Minute) // in a bubble
		for f.light.Try(busy) {
		}
		if !over(post(200, "bob", aPing)) {
			t.Error("a caller waits that is alone again")
		}
		f.requests.Wait()
	})
}

// SPEC N2: the server does not read the large body of a request that is refused, or that needs none: nobody's
// turn would stand for that work. The connection is closed.
func TestN2ALargeBodyThatNobodyNeedsIsNotRead(t *testing.T) {
	const large = 200_000
	h := New(newBridge(), Settings{Verify: aToken, Loopback: true})
	server := httptest.NewServer(h)
	defer server.Close()
	for name, c := range map[string]struct {
		want   int
		head   string
		length int
		closed bool
	}{
		"no token":     {401, "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\n", large, true},
		"wrong method": {405, "POST /healthz HTTP/1.1\r\n", large, true},
		"health":       {200, "GET /healthz HTTP/1.1\r\n", large, true},
		"small":        {401, "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\n", 1000, false},
		"a message":    {400, "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer ann\r\n", large, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = fmt.Fprintf(conn, "%sHost: localhost\r\nContent-Length: %d\r\n\r\n", c.head, c.length)
				_, _ = conn.Write(make([]byte, c.length)) // the server may have closed the connection
			}()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != c.want || answer.Close != c.closed {
				t.Errorf("it is answered %d, and closed %v", answer.StatusCode, answer.Close)
			}
			<-sent
		})
	}
}
