package outbound_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// serveHTTP2 starts a server of HTTP/2, with TLS or without, and returns what of a Client asks it.
func serveHTTP2(t *testing.T, secure bool, h http.HandlerFunc) (*httptest.Server, func(*outbound.Client) *http.Client) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	t.Cleanup(s.Close)
	if secure {
		s.EnableHTTP2 = true
		s.StartTLS()
		return s, (*outbound.Client).HTTPClient
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s, (*outbound.Client).H2C
}

// SPEC N2: an answer whose header is too long ends its HTTP/2 connection, but no call of another caller.
func TestN2AnAnswerEndsNoCallOfAnotherCaller(t *testing.T) {
	for name, secure := range map[string]bool{"TLS": true, "without TLS": false} {
		t.Run(name, func(t *testing.T) {
			arrived, answer := make(chan struct{}), make(chan struct{})
			letGo := sync.OnceFunc(func() { close(answer) })
			server, over := serveHTTP2(t, secure, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/long" {
					w.Header().Set("Said", strings.Repeat("x", 70_000))
					return
				}
				close(arrived)
				<-answer
				_, _ = io.WriteString(w, "answered")
			})
			defer letGo()
			opts := outbound.Options{}
			if secure {
				opts.Roots = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			}
			client := over(newClient(t, opts))
			room := turns.NewRoom(1 << 20)
			as := func(caller, path string) (string, error) {
				ctx, end := room.Open(t.Context(), turns.Owner{Caller: caller, Session: "of " + caller})
				defer end()
				resp, err := client.Do(request(t, http.MethodPost, server.URL+path, "{}").WithContext(ctx))
				if err != nil {
					return "", err
				}
				defer func() { _ = resp.Body.Close() }()
				body, err := io.ReadAll(resp.Body)
				return string(body), err
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if got, err := as("bob", "/wait"); err != nil || got != "answered" {
					t.Errorf("bob's call: %q, %v", got, err)
				}
			})
			<-arrived
			if _, err := as("ann", "/long"); err == nil {
				t.Error("an answer with a header of 70 000 bytes was taken")
			}
			letGo()
			wg.Wait()
		})
	}
}

// SPEC N2, S2: what is kept for callers without a request is bounded: the connections of others are closed.
func TestN2ConnectionsOfManyCallersAreBounded(t *testing.T) {
	const callers, kept = 600, 256
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var opened, open atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
			open.Add(1)
		}
		if state == http.StateClosed {
			open.Add(-1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := newClient(t, outbound.Options{})
	room := turns.NewRoom(1 << 20)
	ask := func(caller int) {
		t.Helper()
		ctx, end := room.Open(t.Context(), turns.Owner{Caller: strconv.Itoa(caller)})
		defer end()
		if _, err := do(t, client, request(t, http.MethodPost, server.URL, "{}").WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range callers {
		ask(n)
	}
	testkit.Eventually(t, "the connections of callers that have not asked for long are closed", func() bool { return open.Load() <= kept })
	before := opened.Load()
	ask(callers - kept)
	if opened.Load() != before {
		t.Error("a connection that is to be kept was not used again")
	}
	ask(0)
	if opened.Load() != before+1 {
		t.Error("a connection that is to be closed was used again")
	}
}

// SPEC S2: what comes with an answer is bounded before its body and after it.
func TestS2AnAnswersFieldsAreBounded(t *testing.T) {
	server, over := serveHTTP2(t, false, func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			t.Error(err)
		}
		field := "Field"
		if r.URL.Path == "/trailer" {
			_, _ = io.WriteString(w, "{}")
			field = http.TrailerPrefix + field
		}
		for range n {
			w.Header().Add(field, "")
		}
	})
	client := over(newClient(t, outbound.Options{}))
	for path, refused := range map[string]bool{"/header?n=100": false, "/header?n=300": true, "/trailer?n=200": false, "/trailer?n=300": true} {
		resp, err := client.Do(request(t, http.MethodPost, server.URL+path, "{}"))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		if (err != nil) != refused {
			t.Errorf("%s: %v, want refused: %t", path, err, refused)
		}
	}
}

// SPEC N2, S2: connections that no request has are bounded for all callers together. Those are closed of who keeps the most. Requests
// that share a connection let nobody keep more.
func TestN2FewConnectionsAreKept(t *testing.T) {
	var open atomic.Int32
	const callers, each = 10, 80
	var asked sync.WaitGroup // until all requests of one caller are there, so that each has a connection
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Done()
		asked.Wait()
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		case http.StateActive, http.StateIdle, http.StateHijacked:
		}
	}
	server.Start()
	defer server.Close()
	both, room := newClient(t, outbound.Options{}), turns.NewRoom(1<<20)
	end := waitTogether(t, both, room)
	defer end()
	client := both.HTTPClient()
	for i := range callers {
		name := strconv.Itoa(i)
		ctx, end := room.Open(t.Context(), turns.Owner{Caller: name, Session: name})
		asked.Add(each)
		var wg sync.WaitGroup
		for range each {
			wg.Go(func() {
				resp, err := client.Do(request(t, http.MethodPost, server.URL, "{}").WithContext(ctx))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			})
		}
		wg.Wait()
		end()
	}
	testkit.Eventually(t, "most connections are closed", func() bool { return open.Load() <= 512 })
	if open.Load() < each {
		t.Errorf("%d connections are kept, fewer than those of one caller", open.Load())
	}
}

// waitTogether makes many requests of one caller that share a connection, and wait until end is called.
func waitTogether(t *testing.T, client *outbound.Client, room *turns.Room) (end func()) {
	t.Helper()
	const requests = 200
	var there atomic.Int32
	answer := make(chan struct{})
	server, over := serveHTTP2(t, false, func(http.ResponseWriter, *http.Request) {
		there.Add(1)
		<-answer
	})
	ctx, leave := room.Open(t.Context(), turns.Owner{Caller: "many", Session: "many"})
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			resp, err := over(client).Do(request(t, http.MethodPost, server.URL, "{}").WithContext(ctx))
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	testkit.Eventually(t, "all requests wait", func() bool { return there.Load() == requests })
	return func() {
		close(answer)
		wg.Wait()
		leave()
	}
}
