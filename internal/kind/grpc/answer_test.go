package grpc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/kind/grpc"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 3.3: what each status means.
func TestStatusTable(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, bearer)
	for _, c := range []struct {
		status int
		name   string
		code   fault.Code
		retry  bool
	}{
		{1, "canceled", fault.ExecutionFailed, false},
		{2, "unknown", fault.ExecutionFailed, true},
		{3, "invalid_argument", fault.InvalidInput, false},
		{4, "deadline_exceeded", fault.Timeout, true},
		{5, "not_found", fault.ExecutionFailed, false},
		{6, "already_exists", fault.ExecutionFailed, false},
		{7, "permission_denied", fault.AuthForbidden, false},
		{8, "resource_exhausted", fault.RateLimited, true},
		{9, "failed_precondition", fault.ExecutionFailed, false},
		{10, "aborted", fault.ExecutionFailed, true},
		{11, "out_of_range", fault.InvalidInput, false},
		{12, "unimplemented", fault.ExecutionFailed, false},
		{13, "internal", fault.ExecutionFailed, true},
		{14, "unavailable", fault.ExecutionFailed, true},
		{15, "data_loss", fault.ExecutionFailed, false},
		{16, "unauthenticated", fault.AuthInvalid, false},
		{99, "code_99", fault.ExecutionFailed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := call(t.Context(), tool, fmt.Sprintf(`{"do":"status","code":%d,"message":"for hunter2-token\nand «you»"}`, c.status))
			f := wantFault(t, err, c.code, c.retry)
			if want := "weather answered " + c.name + ": for [redacted] and «you»"; f.Reason != want {
				t.Errorf("got %q, want %q", f.Reason, want)
			}
			if said, _ := f.Log(); strings.Contains(said, "you") {
				t.Errorf("the log quotes the service: %q", said)
			}
		})
	}
}

func TestStatusWithoutWordsAndWithTooMany(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, manifest.Auth{})
	_, err := call(t.Context(), tool, `{"do":"status","code":8}`)
	if f := wantFault(t, err, fault.RateLimited, true); f.Reason != "weather answered resource_exhausted" {
		t.Errorf("got %q", f.Reason)
	}
	_, err = call(t.Context(), tool, `{"do":"status","code":13,"message":"`+strings.Repeat("ü", 1024)+`"}`)
	if f := wantFault(t, err, fault.ExecutionFailed, true); len(f.Reason) > 600 || !strings.HasSuffix(f.Reason, "ü…") {
		t.Errorf("the reason is %d bytes long: %q", len(f.Reason), f.Reason)
	}
}

// SPEC-TOOLS 6.2: a google.rpc.RetryInfo is gRPC's Retry-After.
func TestRetryInfoIsRetryAfter(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, manifest.Auth{})
	_, err := call(t.Context(), tool, `{"do":"status","code":8,"message":"slowly","retry_after_ms":1500}`)
	if f := wantFault(t, err, fault.RateLimited, true); f.RetryAfter != 1500*time.Millisecond || !strings.Contains(f.Reason, "slowly") {
		t.Errorf("got %s, %q", f.RetryAfter, f.Reason)
	}
	_, err = call(t.Context(), tool, `{"do":"status","code":14,"message":"x","retry_after_ms":1e15}`)
	if f := wantFault(t, err, fault.ExecutionFailed, true); f.RetryAfter != 24*time.Hour {
		t.Errorf("got %s", f.RetryAfter)
	}
}

// SPEC-TOOLS 2.2, 4.1: envelopes are read as over any other transport.
func TestEnvelopes(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, bearer)
	for name, c := range map[string]struct {
		args string
		code fault.Code
		says string
	}{
		"half of one":      {`{"do":"half"}`, fault.ExecutionFailed, "not JSON"},
		"of another call":  {`{"do":"other"}`, fault.ExecutionFailed, "request_id"},
		"none":             {`{"do":"raw","text":""}`, fault.ExecutionFailed, "empty"},
		"a page":           {`{"do":"raw","text":"<html>hello</html>"}`, fault.ExecutionFailed, "not JSON"},
		"the tool's error": {`{"do":"error","error":{"tool_code":"rate_limited","tool_reason":"not hunter2-token","retryable":false}}`, fault.RateLimited, "not [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := call(t.Context(), tool, c.args)
			if f := wantFault(t, err, c.code, false); !strings.Contains(f.Reason, c.says) {
				t.Errorf("%q does not say %q", f.Reason, c.says)
			}
		})
	}
}

// SPEC-TOOLS 2.3: over max_output is an error that says so.
func TestAnswerIsBounded(t *testing.T) {
	tool := tool(t, needs.Start(t, "grpc").Addr, manifest.Auth{})
	res, err := call(t.Context(), tool, fmt.Sprintf(`{"do":"big","bytes":%d}`, maxOutput-200))
	if err != nil || len(res.Content[0].(*mcp.TextContent).Text) != maxOutput-200 {
		t.Fatalf("an answer below the limit: %v", err)
	}
	for _, size := range []int{maxOutput, 64 << 20} {
		_, err = call(t.Context(), tool, fmt.Sprintf(`{"do":"big","bytes":%d}`, size))
		if f := wantFault(t, err, fault.ExecutionFailed, false); !strings.Contains(f.Reason, "max_output") {
			t.Errorf("%d bytes: %q", size, f.Reason)
		}
	}
	if _, err = call(t.Context(), tool, `{"say":"still there"}`); err != nil {
		t.Error(err)
	}
}

// Networks that break in the middle of an answer are a reason to try again.
func TestNetworkBreaks(t *testing.T) {
	proxy := faultproxy.New(t, needs.Start(t, "grpc").Addr)
	for name, broken := range map[string]faultproxy.Fault{
		"refused":               {Refuse: true},
		"reset after the call":  {Swallow: true},
		"cut in the answer":     {After: 20 << 10, Then: faultproxy.Cut},
		"reset in the answer":   {After: 20 << 10, Then: faultproxy.Reset},
		"an answer of HTTP/1.1": {Instead: "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tool := tool(t, proxy.Addr(), bearer)
			proxy.Next(broken)
			_, err := call(t.Context(), tool, `{"do":"big","bytes":40000}`)
			_ = wantFault(t, err, fault.ExecutionFailed, true)
			if _, err := call(t.Context(), tool, `{}`); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// What stands before a service may answer in its place, over HTTP/2 but not gRPC.
func TestAnswersThatAreNotGRPC(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		code   fault.Code
		retry  bool
		says   string
	}{
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>Welcome</html>")
		}, fault.ExecutionFailed, false, "text/html"},
		"no status": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+json")
			fmt.Fprint(w, "\x00\x00\x00\x00\x02{}")
		}, fault.ExecutionFailed, true, "not a whole gRPC answer"},
		"two messages": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			fmt.Fprint(w, "\x00\x00\x00\x00\x02{}\x00\x00\x00\x00\x02{}")
			w.Header().Set("Grpc-Status", "0")
		}, fault.ExecutionFailed, false, "not a whole gRPC answer"},
		"nothing": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "0")
		}, fault.ExecutionFailed, false, "not a whole gRPC answer"},
		"more than it promised": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			fmt.Fprint(w, "\x00\xff\xff\xff\xff{}")
		}, fault.ExecutionFailed, true, "not a whole gRPC answer"},
		"packed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Encoding", "gzip")
			fmt.Fprint(w, "\x01\x00\x00\x00\x02{}")
		}, fault.ExecutionFailed, false, "compressed"},
		"401":        {status(http.StatusUnauthorized), fault.AuthInvalid, false, "401"},
		"429":        {status(http.StatusTooManyRequests), fault.RateLimited, true, "429"},
		"503":        {status(http.StatusServiceUnavailable), fault.ExecutionFailed, true, "503"},
		"404":        {status(http.StatusNotFound), fault.ExecutionFailed, false, "404"},
		"a redirect": {http.RedirectHandler("http://169.254.169.254/latest/", http.StatusTemporaryRedirect).ServeHTTP, fault.ExecutionFailed, false, "307"},
		"a long pause": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}, fault.RateLimited, true, "429"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			plainHTTP2(t, listener, c.answer)
			_, err = call(t.Context(), tool(t, listener.Addr().String(), bearer), `{}`)
			f := wantFault(t, err, c.code, c.retry)
			if !strings.Contains(f.Reason, c.says) {
				t.Errorf("%q does not say %q", f.Reason, c.says)
			}
			if name == "a long pause" && f.RetryAfter != 7*time.Second {
				t.Errorf("got %s", f.RetryAfter)
			}
		})
	}
}

// An address of IPv6 may say by which interface it is reached.
func TestServiceBehindAnInterface(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1%lo]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6, or calls its loopback otherwise: %v", err)
	}
	plainHTTP2(t, listener, status(http.StatusTooManyRequests))
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = call(t.Context(), tool(t, "[::1%25lo]:"+port, bearer), `{}`); fault.CodeOf(err) != fault.RateLimited {
		t.Errorf("got %v", err)
	}
}

// plainHTTP2 serves HTTP/2 without TLS until the end of the test.
func plainHTTP2(t *testing.T, listener net.Listener, h http.Handler) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close() // the one that it comes with
	server.Listener = listener
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// SPEC-TOOLS 1.2: host:port alone means TLS, which a plain service does not
// speak: the error says how to write its endpoint.
func TestT33APlainServiceBehindTLSIsExplained(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"closes": func(c net.Conn) { _, _ = c.Read(make([]byte, 64)) },
		"settings": func(c net.Conn) {
			_, _ = c.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			_, _ = c.Read(make([]byte, 64))
		},
		"bad request": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64))
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		},
		"resets": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64))
			_ = c.(*net.TCPConn).SetLinger(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			t.Cleanup(func() {
				_ = l.Close()
				serving.Wait()
			})
			serving.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serve(c)
					_ = c.Close()
				}
			})
			_, err = call(t.Context(), secured(t, l.Addr().String()), `{}`)
			f := fault.From(err)
			if f == nil || f.Code != fault.ExecutionFailed || !strings.Contains(f.Reason, "grpc://"+l.Addr().String()) {
				t.Errorf("error = %v", err)
			}
		})
	}
	// Nobody is there: that it may be plain would mislead.
	if _, err := call(t.Context(), secured(t, needs.Address(t)), `{}`); err == nil || strings.Contains(err.Error(), "grpc://") {
		t.Errorf("error = %v", err)
	}
}

// secured is a tool that is the service at addr, over TLS.
func secured(t *testing.T, addr string) *grpc.Tool {
	t.Helper()
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	made, err := grpc.New(manifest.Tool{
		Name: "weather", Kind: manifest.GRPC, Source: "weather.yaml", InputSchema: json.RawMessage(`{"type":"object"}`),
		Resource: &manifest.Resource{Namespace: "default", Endpoint: "grpcs://" + addr},
	}, grpc.Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// SPEC S2, N2: a call waits for a place among the requests that its service works on,
// and gives it back; another caller finds one.
func TestS2CallsWaitForTheirService(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	plainHTTP2(t, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	made, err := grpc.New(manifest.Tool{
		Name: "weather", Kind: manifest.GRPC, Source: "weather.yaml", InputSchema: json.RawMessage(`{"type":"object"}`),
		Resource: &manifest.Resource{Namespace: "default", Endpoint: "grpc://" + l.Addr().String()},
	}, grpc.Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	big, service := turns.Owner{Caller: "big"}, client.Service("grpc://"+l.Addr().String())
	places := 0
	for service.Begin(ended, big) == nil {
		places++
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = made.Call(ctx, peer.Call{Args: json.RawMessage(`{}`), Owner: big})
	if n := asked.Load(); fault.CodeOf(err) != fault.Timeout || n != 0 {
		t.Errorf("a call without a place: %v, and the service got %d requests; want a timeout and none", err, n)
	}
	for range 2 * places {
		_, err := made.Call(t.Context(), peer.Call{Args: json.RawMessage(`{}`), Owner: turns.Owner{Caller: "small"}})
		if fault.CodeOf(err) != fault.RateLimited {
			t.Fatalf("a call of another caller: %v; want what the service answered", err)
		}
	}
}
