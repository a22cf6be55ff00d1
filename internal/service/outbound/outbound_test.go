package outbound_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/needs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const planted = "s3cr3t-of-the-test"

func newClient(t *testing.T, opts outbound.Options) *outbound.Client {
	t.Helper()
	c := outbound.New(opts)
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+planted)
	req.Header.Set("X-Api-Key", planted)
	req.Header.Set("Content-Type", "application/json")
	return req
}

// do makes a request and reads the answer.
func do(t *testing.T, c *outbound.Client, req *http.Request) (string, error) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := outbound.Body(resp.Body, 1<<20)
	return string(body), err
}

// failing asserts that err is a fault, and returns it.
func failing(t *testing.T, err error, code fault.Code, retryable, unsent bool) fault.Error {
	t.Helper()
	f, ok := err.(*fault.Error) //nolint:errorlint // no wrapper is to be around it
	if !ok {
		t.Fatalf("got %T %v, want a *fault.Error", err, err)
	}
	if f.Code != code || f.Retryable() != retryable || f.Unsent != unsent {
		t.Errorf("got %s, retryable %v, unsent %v (%v); want %s, %v, %v", f.Code, f.Retryable(), f.Unsent, f, code, retryable, unsent)
	}
	if strings.Contains(f.Error(), planted) {
		t.Errorf("the error shows the secret: %v", f)
	}
	return *f
}

// SPEC-TOOLS 5.4: addresses are refused at dial time, after names are resolved.
func TestBlockedAddresses(t *testing.T) {
	var asked atomic.Int64
	server := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	port := server.URL[strings.LastIndex(server.URL, ":")+1:]
	for _, c := range []struct {
		policy outbound.Private
		url    string
		want   string
	}{
		{outbound.PrivateNone, server.URL, `"loopback" would allow it`},
		{outbound.PrivateNone, "http://localhost:" + port, `"loopback" would allow it`}, // a name
		{outbound.PrivateNone, "http://[::ffff:127.0.0.1]:" + port, "loopback"},
		{outbound.PrivateLoopback, "http://10.1.2.3", `"all" would allow it`},
		{outbound.PrivateLoopback, "http://192.168.0.1:8080", "allow_private_endpoints"},
		{outbound.PrivateAll, "http://169.254.169.254/latest/meta-data/", "link-local"},
		{outbound.PrivateAll, "http://[::ffff:169.254.169.254]/latest/", "link-local"},
		{outbound.PrivateAll, "http://[fd00:ec2::254]/latest/", "metadata"},
		{outbound.PrivateAll, "http://[fe80::1%25lo]/", "link-local"},
		{outbound.PrivateAll, "http://100.100.100.200/", "metadata"},
		{outbound.PrivateAll, "http://0.0.0.0:" + port, "special"}, // which would be loopback
		{outbound.PrivateAll, "http://[::]:" + port, "special"},
	} {
		for name, client := range map[string]*http.Client{"Do": nil, "HTTPClient": newClient(t, outbound.Options{Private: c.policy}).HTTPClient(), "H2C": newClient(t, outbound.Options{Private: c.policy}).H2C()} {
			t.Run(name+" "+c.url, func(t *testing.T) {
				req := request(t, http.MethodPost, c.url, "{}")
				var err error
				if client == nil {
					_, err = do(t, newClient(t, outbound.Options{Private: c.policy}), req)
				} else {
					var resp *http.Response
					if resp, err = client.Do(req); err == nil {
						_ = resp.Body.Close()
					}
					f, ok := errors.AsType[*fault.Error](err)
					if !ok {
						t.Fatalf("no fault in %v", err)
					}
					err = f
				}
				f := failing(t, err, fault.RuntimePolicyInvalid, false, true)
				if !strings.Contains(f.Reason, c.want) {
					t.Errorf("got %q, want it to say %q", f.Reason, c.want)
				}
			})
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

// SPEC-TOOLS 5.4: a redirect reaches no more than a request.
func TestRedirectToMetadata(t *testing.T) {
	for _, target := range []string{"http://169.254.169.254/latest/meta-data/", "http://[::ffff:a9fe:a9fe]/", "http://10.0.0.1/"} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
		_, err := do(t, newClient(t, outbound.Options{}), request(t, http.MethodGet, server.URL, ""))
		failing(t, err, fault.RuntimePolicyInvalid, false, true)
	}
}

// SPEC-TOOLS 5.3: what follows a redirect, and where to.
func TestRedirects(t *testing.T) {
	type seen struct {
		method, body string
		header       http.Header
	}
	var arrived atomic.Pointer[seen]
	arrive := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived.Store(&seen{r.Method, string(body), r.Header.Clone()})
		_, _ = io.WriteString(w, "arrived")
	}
	other := serve(t, arrive)
	var back *httptest.Server
	between := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, back.URL+"/end", http.StatusTemporaryRedirect)
	})
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	back = server
	t.Cleanup(server.Close)
	mux.HandleFunc("/end", arrive)
	for status := range map[int]bool{301: true, 302: true, 303: true, 307: true, 308: true} {
		mux.Handle(fmt.Sprintf("/same/%d", status), http.RedirectHandler("/end?key="+planted, status))
		mux.Handle(fmt.Sprintf("/other/%d", status), http.RedirectHandler(other.URL+"/x?key="+planted, status))
	}
	mux.Handle("/there-and-back", http.RedirectHandler(between.URL, http.StatusTemporaryRedirect))
	mux.Handle("/circle", http.RedirectHandler("/circle", http.StatusTemporaryRedirect))
	mux.Handle("/ftp", http.RedirectHandler("ftp://"+planted+"@127.0.0.1/x", http.StatusFound))
	mux.Handle("/user", http.RedirectHandler(strings.Replace(other.URL, "http://", "http://user:pw@", 1), http.StatusFound))

	for _, c := range []struct {
		method, path string
		arrives      string // the method that does; "" for a refusal
		body, bare   bool
	}{
		{"POST", "/same/301", "GET", false, false},
		{"POST", "/same/302", "GET", false, false},
		{"POST", "/same/303", "GET", false, false},
		{"POST", "/same/307", "POST", true, false},
		{"POST", "/same/308", "POST", true, false},
		{"GET", "/same/302", "GET", false, false},
		{"GET", "/other/302", "GET", false, true},
		{"GET", "/other/307", "GET", false, true},
		{"GET", "/user", "GET", false, true},
		{"GET", "/there-and-back", "GET", false, true}, // who has been elsewhere brings nothing back
		{"POST", "/there-and-back", "", false, false},
		{"POST", "/other/301", "", false, false},
		{"POST", "/other/303", "", false, false},
		{"POST", "/other/307", "", false, false},
		{"POST", "/other/308", "", false, false},
		{"PUT", "/other/307", "", false, false},
		{"POST", "/circle", "", false, false},
		{"GET", "/ftp", "", false, false},
	} {
		t.Run(c.method+c.path, func(t *testing.T) {
			arrived.Store(nil)
			sent := ""
			if c.method != "GET" {
				sent = "arguments"
			}
			req := request(t, c.method, server.URL+c.path+"?key="+planted, sent)
			req.Header.Set("X-Custom", planted)
			_, err := do(t, newClient(t, outbound.Options{}), req)
			got := arrived.Load()
			if c.arrives == "" {
				failing(t, err, fault.ExecutionFailed, false, false)
				if got != nil {
					t.Errorf("a %s arrived", got.method)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.method != c.arrives || (got.body == "arguments") != c.body {
				t.Errorf("arrived: %s %q", got.method, got.body)
			}
			if got.header.Get("Referer") != "" {
				t.Errorf("arrived with Referer %q", got.header.Get("Referer"))
			}
			for _, name := range []string{"Authorization", "X-Api-Key", "X-Custom"} {
				if had := got.header.Get(name) != ""; had == c.bare {
					t.Errorf("arrived with %s: %v", name, got.header[name])
				}
			}
		})
	}
}

// A connection that is not HTTP any more does not end with the request's context:
// who answers 101 could hold a call for ever.
func TestAnotherProtocolIsNoAnswer(t *testing.T) {
	closed := make(chan error, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			closed <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nmore")
		_ = rw.Flush()
		_, err = rw.ReadByte()
		closed <- err
	})
	c := newClient(t, outbound.Options{})
	for name, send := range map[string]func(*http.Request) (*http.Response, error){"Do": c.Do, "HTTPClient": c.HTTPClient().Do} {
		resp, err := send(request(t, http.MethodPost, server.URL, "{}"))
		if err == nil {
			_ = resp.Body.Close()
			t.Fatalf("%s: answered %s, want an error", name, resp.Status)
		}
		failing(t, fault.From(err), fault.ExecutionFailed, false, false)
		if err := <-closed; !errors.Is(err, io.EOF) {
			t.Errorf("%s: the service saw %v, want the end of the connection", name, err)
		}
	}
}

// SPEC S2: a header stays in memory while its call waits for the rest, and one of
// 1 MiB with short names took 24 MiB.
func TestS2TheHeaderOfAnAnswerIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		names, times, size int
		refused            bool
	}{
		"many names":        {names: 300, times: 1, refused: true},
		"one name, often":   {names: 1, times: 300, refused: true},
		"long":              {names: 1, times: 1, size: 100 << 10, refused: true},
		"as many as may be": {names: 100, times: 2, size: 100},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := range c.names {
					for range c.times {
						w.Header().Add(fmt.Sprintf("X-%d", i), strings.Repeat("x", c.size))
					}
				}
			})
			_, err := do(t, newClient(t, outbound.Options{}), request(t, http.MethodPost, server.URL, "{}"))
			if refused := err != nil; refused != c.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The errors of SPEC-TOOLS §4 for what networks do.
func TestTransportFaults(t *testing.T) {
	const gzipped = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 10_000)) })
	target := server.Listener.Addr().String()
	for name, c := range map[string]struct {
		fault     faultproxy.Fault
		retryable bool
		want      string
	}{
		"reset behind the request": {faultproxy.Fault{Swallow: true}, true, "reset"},
		"cut before the answer":    {faultproxy.Fault{After: 0, Instead: " "}, true, ""},
		"cut in the header":        {faultproxy.Fault{After: 20, Then: faultproxy.Cut}, true, ""},
		"cut in the body":          {faultproxy.Fault{After: 5_000, Then: faultproxy.Cut}, true, "closed"},
		"reset in the body":        {faultproxy.Fault{After: 5_000, Then: faultproxy.Reset}, true, "broke"},
		"no HTTP":                  {faultproxy.Fault{Instead: planted + " is what I say\r\n\r\n"}, true, ""},
		"a wrong status":           {faultproxy.Fault{Instead: "HTTP/1.1 " + planted + " OK\r\n\r\n"}, true, ""},
		"a wrong header":           {faultproxy.Fault{Instead: "HTTP/1.1 200 OK\r\n" + planted + "\r\n\r\n"}, true, "malformed"},
		"a wrong length":           {faultproxy.Fault{Instead: "HTTP/1.1 200 OK\r\nContent-Length: " + planted + "\r\n\r\n"}, true, ""},
		"a wrong encoding":         {faultproxy.Fault{Instead: "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + planted + "\r\n\r\n"}, true, ""},
		"a wrong chunk":            {faultproxy.Fault{Instead: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + planted + "\r\n"}, true, ""},
		"no gzip":                  {faultproxy.Fault{Instead: gzipped + planted}, false, "gzip"},
		"a broken gzip":            {faultproxy.Fault{Instead: gzipped + "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff" + planted}, false, "gzip"},
		"a header without end":     {faultproxy.Fault{Instead: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat(planted, 200_000)}, true, ""},
		"a wrong place":            {faultproxy.Fault{Instead: "HTTP/1.1 307 X\r\nContent-Length: 0\r\nLocation: http://%zz" + planted + "\r\n\r\n"}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, target)
			proxy.Always(c.fault)
			url := "http://user:" + planted + "@" + proxy.Addr() + "/path?key=" + planted
			_, err := do(t, newClient(t, outbound.Options{}), request(t, http.MethodPost, url, "{}"))
			f := failing(t, err, fault.ExecutionFailed, c.retryable, false)
			if !strings.Contains(f.Reason, c.want) || strings.Contains(f.Reason, "path") {
				t.Errorf("got %q", f.Reason)
			}
			t.Log(f.Error())
		})
	}
}

func TestNoConnection(t *testing.T) {
	closed := needs.Address(t)
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	trusted := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(trusted.Close)
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10} //nolint:gosec // it is the one to refuse
	old.StartTLS()
	t.Cleanup(old.Close)
	for _, s := range []*httptest.Server{trusted, old} {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
	}

	for name, c := range map[string]struct {
		url       string
		retryable bool
		want      string
	}{
		"refused":             {"http://" + closed, true, "refused"},
		"no such name":        {"http://no-such-name.invalid", true, "resolved"},
		"a strange authority": {trusted.URL, false, "not trusted"},
		"not TLS":             {strings.Replace(plain.URL, "http", "https", 1), false, "does not speak TLS"},
		"TLS 1.1":             {old.URL, false, "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := do(t, newClient(t, outbound.Options{}), request(t, http.MethodPost, c.url+"/path?key="+planted, "{}"))
			f := failing(t, err, fault.ExecutionFailed, c.retryable, true)
			if !strings.Contains(f.Reason, c.want) {
				t.Errorf("got %q, want it to say %q", f.Reason, c.want)
			}
			t.Log(f.Error())
		})
	}
}

// The end of a context is the error that it ended with.
func TestContextEnds(t *testing.T) {
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-release
	})
	defer close(release)
	late := fault.New(fault.Timeout, "weather gave no answer within its timeout of 5s")
	for _, path := range []string{"/header", "/body"} {
		for name, c := range map[string]struct {
			cause error
			want  fault.Code
		}{"a deadline": {late, fault.Timeout}, "a client that leaves": {nil, fault.Canceled}} {
			t.Run(name+path, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				go func() {
					<-arrived
					cancel(c.cause)
				}()
				_, err := do(t, newClient(t, outbound.Options{}), request(t, http.MethodPost, server.URL+path, "{}").WithContext(ctx))
				if fault.CodeOf(err) != c.want || c.cause != nil && !errors.Is(err, c.cause) {
					t.Errorf("got %v, want %v", err, c.cause)
				}
			})
		}
	}
}

// A call that ends takes no other with it that has its connection next: what
// fails is tried again, and does not say that it was cancelled or is too late.
func TestAnotherRequestsEndIsNone(t *testing.T) {
	late := fault.New(fault.Timeout, "another call was too late")
	var ends sync.Map // by the name of a request: what ends it
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush() // the answer is there before the end
		if end, ok := ends.Load(r.URL.Path); ok {
			<-time.After(rand.N(300 * time.Microsecond))
			end.(context.CancelCauseFunc)(late)
		}
	})
	c := newClient(t, outbound.Options{})
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			for j := range 50 {
				ctx, end := context.WithCancelCause(t.Context())
				path := fmt.Sprintf("/%d/%d", i, j)
				if i%2 == 0 {
					ends.Store(path, end)
				}
				_, err := do(t, c, request(t, http.MethodPost, s.URL+path, "{}").WithContext(ctx))
				if code := fault.CodeOf(err); i%2 == 1 && code != "" && (code != fault.ExecutionFailed || !fault.From(err).Retryable()) {
					t.Errorf("a call that nobody ended: %v", err)
				}
				end(nil)
			}
		})
	}
	calls.Wait()
}

// A policy that changes takes the idle connections along that it would refuse.
func TestAllowWhileServing(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, outbound.Options{})
	once := func() error {
		_, err := do(t, c, request(t, http.MethodPost, server.URL, "{}"))
		return err
	}
	if err := once(); err != nil {
		t.Fatal(err)
	}
	c.Allow(outbound.PrivateNone)
	failing(t, once(), fault.RuntimePolicyInvalid, false, true)
	c.Allow(outbound.PrivateAll)
	if err := once(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				if i == 0 {
					c.Allow([]outbound.Private{outbound.PrivateNone, outbound.PrivateLoopback}[n%2])
				} else if err := once(); err != nil && fault.CodeOf(err) != fault.RuntimePolicyInvalid {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// connections counts those that a server sees.
func connections(s *httptest.Server) *atomic.Int64 {
	var opened atomic.Int64
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	return &opened
}

// Connections are used again: one for calls in a row, at most one each for calls
// at the same time, and a setting that changes nothing closes none.
func TestConnectionsAreReused(t *testing.T) {
	const callers, rounds = 64, 20
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	opened := connections(server)
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, outbound.Options{})
	for range 50 {
		if _, err := do(t, c, request(t, http.MethodPost, server.URL, "{}")); err != nil {
			t.Fatal(err)
		}
		c.Allow(outbound.PrivateLoopback)
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("50 calls in a row used %d connections", n)
	}
	atOnce(t, callers, func() {
		for range rounds {
			if _, err := do(t, c, request(t, http.MethodPost, server.URL, "{}")); err != nil {
				t.Error(err)
			}
		}
	})
	// A dial may be begun for a request that then gets a connection which came free.
	if n := opened.Load(); n > 2*callers {
		t.Errorf("%d calls, %d at a time, used %d connections", callers*rounds, callers, n)
	}
}

// HTTP/2 over TLS by itself, and without TLS where it is asked for.
func TestHTTP2(t *testing.T) {
	protocol := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }
	secure := httptest.NewUnstartedServer(http.HandlerFunc(protocol))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := httptest.NewUnstartedServer(http.HandlerFunc(protocol))
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	opened := connections(plain)
	plain.Start()
	t.Cleanup(plain.Close)

	roots := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c := newClient(t, outbound.Options{Roots: roots})
	if got, err := do(t, c, request(t, http.MethodPost, secure.URL, "{}")); err != nil || got != "HTTP/2.0" {
		t.Errorf("over TLS: got %q, %v", got, err)
	}
	const rounds = 4
	for range rounds {
		atOnce(t, 20, func() {
			resp, err := c.H2C().Do(request(t, http.MethodPost, plain.URL, "{}"))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "HTTP/2.0" {
				t.Errorf("without TLS: got %q, %v", body, err)
			}
		})
	}
	if n := opened.Load(); n > 20 { // as long as there is none, each request dials one
		t.Errorf("%d times 20 requests at once used %d connections", rounds, n)
	}
}

// SPEC S2: what a service of HTTP/2 sends before its call reads it is in memory,
// and calls may wait for room before they read.
func TestS2WhatHTTP2SendsAheadIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String(), nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := newClient(t, outbound.Options{}).H2C().Do(req); err == nil {
			_ = resp.Body.Close()
		}
	})
	defer wg.Wait()
	defer cancel()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	head := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")+9) // and that of the SETTINGS behind it
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	settings := make([]byte, binary.BigEndian.Uint16(head[len(head)-8:]))
	if _, err := io.ReadFull(conn, settings); err != nil {
		t.Fatal(err)
	}
	window := uint32(0)
	for ; len(settings) >= 6; settings = settings[6:] {
		if binary.BigEndian.Uint16(settings) == 4 { // SETTINGS_INITIAL_WINDOW_SIZE
			window = binary.BigEndian.Uint32(settings[2:])
		}
	}
	if window == 0 || window > 128<<10 {
		t.Errorf("a stream may send %d bytes ahead; want 128 KiB at most", window)
	}
}

// SPEC S2: a service that says of each connection that it did not look at the request
// is not tried for as long as the call may last.
func TestS2ConnectionsThatEndAreCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			made.Add(1)
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))                                         // the last may be one too many
				_, _ = io.WriteString(conn, "\x00\x00\x00\x04\x00\x00\x00\x00\x00")                           // SETTINGS
				_, _ = io.CopyN(io.Discard, conn, 120)                                                        // the preface, and all of the request's header that matters
				_, _ = io.WriteString(conn, "\x00\x00\x08\x07\x00\x00\x00\x00\x00"+strings.Repeat("\x00", 8)) // GOAWAY
			})
		}
	})
	defer wg.Wait()
	defer func() { _ = l.Close() }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 1000))
	c := newClient(t, outbound.Options{})
	defer c.Close()
	resp, err := c.H2C().Do(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("there was an answer")
	}
	if n := made.Load(); n > 40 {
		t.Errorf("%d connections were made: %v", n, err)
	}
}

// atOnce runs f n times at the same time.
func atOnce(t *testing.T, n int, f func()) {
	t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

// Environment variables that name a proxy change nothing: it would hide the
// address from the guard.
func TestNoProxy(t *testing.T) {
	var asked atomic.Int64
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	_, err := do(t, newClient(t, outbound.Options{}), request(t, http.MethodGet, "http://10.9.8.7/", ""))
	failing(t, err, fault.RuntimePolicyInvalid, false, true)
	if n := asked.Load(); n != 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}

// An answer over the limit is an error, never its beginning, and is not read to
// its end.
func TestBodyLimit(t *testing.T) {
	const gib = 1 << 30
	var written atomic.Int64
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		block := make([]byte, 1<<16)
		for written.Load() < gib {
			n, err := w.Write(block)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})
	resp, err := newClient(t, outbound.Options{}).Do(request(t, http.MethodPost, server.URL, "{}"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = outbound.Body(resp.Body, 1<<20)
	_ = resp.Body.Close()
	f := failing(t, err, fault.ExecutionFailed, false, false)
	if !strings.Contains(f.Reason, "1048576") {
		t.Errorf("got %q", f.Reason)
	}
	server.Close() // waits for the handler
	if n := written.Load(); n > 64<<20 {
		t.Errorf("%d bytes were sent", n)
	}

	for _, max := range []int64{5, 6, 1 << 62, 1<<63 - 1} {
		if got, err := outbound.Body(strings.NewReader("12345"), max); err != nil || string(got) != "12345" {
			t.Errorf("of %d at most: got %q, %v", max, got, err)
		}
	}
	_, err = outbound.Body(strings.NewReader("12345"), 4)
	failing(t, err, fault.ExecutionFailed, false, false)
}

// SPEC-TOOLS §4: what a status means.
func TestStatusFault(t *testing.T) {
	for status, want := range map[int]struct {
		code  fault.Code
		retry bool
	}{
		302: {fault.ExecutionFailed, false},
		400: {fault.ExecutionFailed, false},
		401: {fault.AuthInvalid, false},
		403: {fault.AuthForbidden, false},
		404: {fault.ExecutionFailed, false},
		408: {fault.ExecutionFailed, false},
		429: {fault.RateLimited, true},
		500: {fault.ExecutionFailed, true},
		503: {fault.ExecutionFailed, true},
		599: {fault.ExecutionFailed, true},
	} {
		f := outbound.StatusFault("weather", &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"7"}}}, []byte("the words"))
		if f.Code != want.code || f.Retryable() != want.retry || f.RetryAfter != 7*time.Second {
			t.Errorf("%d: got %v, retryable %v, after %v", status, f, f.Retryable(), f.RetryAfter)
		}
		if !strings.Contains(f.Reason, "the words") || !strings.Contains(f.Reason, fmt.Sprint(status)) {
			t.Errorf("%d: the reason is %q", status, f.Reason)
		}
		if logged, cause := f.Log(); strings.Contains(logged, "the words") || cause != nil {
			t.Errorf("%d: the log has %q, %v", status, logged, cause) // SPEC I2
		}
	}
}

func TestStatusFaultWords(t *testing.T) {
	for name, c := range map[string]struct{ kind, body, want string }{
		"HTML":    {"text/html; charset=utf-8", "<html>no</html>", "weather answered 502 Bad Gateway"},
		"binary":  {"image/png", "\x89PNG\x00\x01", "weather answered 502 Bad Gateway"},
		"nothing": {"", "", "weather answered 502 Bad Gateway"},
		"lines":   {"text/plain", "one\r\n\ttwo\x1b[31m", "weather answered 502 Bad Gateway: one two [31m"},
		"long":    {"text/plain", strings.Repeat("é", 1<<20), "weather answered 502 Bad Gateway: " + strings.Repeat("é", 256) + "…"},
		"odd":     {"text/plain", "x" + strings.Repeat("é", 1<<20), "weather answered 502 Bad Gateway: x" + strings.Repeat("é", 255) + "…"},
	} {
		resp := &http.Response{StatusCode: 502, Header: http.Header{"Content-Type": {c.kind}}}
		if got := outbound.StatusFault("weather", resp, []byte(c.body)).Reason; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// SPEC-TOOLS 6.2: Retry-After in both of its forms.
func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "3": 3 * time.Second, " 3 ": 3 * time.Second, "-3": 0, "soon": 0, "1.5": 0,
		"99999999999999999999": 0, "18446744073709551615": 24 * time.Hour, "604800": 24 * time.Hour,
		"Wed, 21 Oct 2015 07:28:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": 24 * time.Hour,
	} {
		if got := outbound.RetryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	at := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	if got := outbound.RetryAfter(http.Header{"Retry-After": {at}}); got <= 50*time.Minute || got > time.Hour {
		t.Errorf("in an hour: got %v", got)
	}
}
