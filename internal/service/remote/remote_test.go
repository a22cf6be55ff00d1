package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// sdkServer is a server made with the SDK, over Streamable HTTP with sessions.
func sdkServer(t *testing.T, opts *mcp.StreamableHTTPOptions) (*mcp.Server, *httptest.Server) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	add := func(name string, handler mcp.ToolHandler) {
		server.AddTool(&mcp.Tool{Name: name, Description: name + "s", InputSchema: json.RawMessage(`{"type":"object"}`)}, handler)
	}
	say := func(text string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
	add("echo", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return say(string(req.Params.Arguments))
	})
	add("count_up", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 5 {
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i)})
			if err != nil {
				return nil, err
			}
		}
		return say("counted")
	})
	add("ask", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return nil, err
		}
		return say(fmt.Sprint(res.Content["name"]))
	})
	add("wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, opts))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return server, h
}

// noticing serves a handler; opened is closed when a client has its stream of
// what the server says by itself.
func noticing(t *testing.T, handler http.Handler) (front *httptest.Server, opened <-chan struct{}) {
	t.Helper()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &noticedStream{w, begin}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front, begun
}

// noticedStream tells when something is written to it.
type noticedStream struct {
	http.ResponseWriter
	begin func()
}

func (s *noticedStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *noticedStream) Write(p []byte) (int, error) {
	s.begin()
	return s.ResponseWriter.Write(p)
}

// SPEC-TOOLS 3.5: a server over Streamable HTTP is a capsule: it lists, answers,
// tells of progress in order and before the answer, and asks the client. By SSE
// and by JSON.
func TestSession(t *testing.T) {
	for name, opts := range map[string]*mcp.StreamableHTTPOptions{
		"sse":                     nil,
		"sse that can be resumed": {EventStore: mcp.NewMemoryEventStore(nil)},
		"json":                    {JSONResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			server, h := sdkServer(t, opts)
			front, opened := noticing(t, h.Config.Handler)
			l := connect(t, front.URL)
			l.becomes("READY")
			var names []string
			for _, tool := range l.offers(4) {
				names = append(names, tool.Name)
			}
			if want := []string{"far--ask", "far--count-up", "far--echo", "far--wait"}; !slices.Equal(names, want) {
				t.Errorf("the tools are %q, want %q", names, want)
			}
			if got := l.text("far--echo", `{"n":12345678901234567890}`); got != `{"n":12345678901234567890}` {
				t.Errorf("echo answers %s", got)
			}
			if opts == nil || !opts.JSONResponse {
				client := &teller{}
				if got, err := l.call("far--count-up", `{}`, client); got != "counted" || err != nil {
					t.Errorf("count_up answers %s, %v", got, err)
				}
				if len(client.told) != 5 {
					t.Errorf("the client was told %q", client.told)
				}
				for i, told := range client.told {
					if !strings.Contains(told, fmt.Sprintf(`"progress":%d`, i)) {
						t.Errorf("the client was told %q", client.told)
						break
					}
				}
				if got, err := l.call("far--ask", `{}`, client); got != "Ada" || err != nil {
					t.Errorf("ask answers %s, %v", got, err)
				}
			}
			within(t, "the server has somewhere to tell of it", opened)
			server.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
			l.offers(5)
			l.stop()
			testkit.Eventually(t, "the server's session is over", func() bool {
				for range server.Sessions() {
					return false
				}
				return true
			})
		})
	}
}

// A call that its client does not wait for is cancelled at the server.
func TestCancelledCall(t *testing.T) {
	_, h := sdkServer(t, nil)
	l := connect(t, h.URL)
	l.offers(4)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := l.Call(ctx, peer.Call{Tool: "far--wait"})
	if fault.CodeOf(err) != fault.Timeout {
		t.Errorf("the error is %v", err)
	}
	testkit.Eventually(t, "nothing is in flight", func() bool { return l.Life().InFlight == 0 })
	if got := l.text("far--echo", `{}`); got != `{}` {
		t.Errorf("afterwards echo answers %s", got)
	}
}

// Many calls at once do not wait for each other, nor for one that lasts.
func TestManyCallsAtOnce(t *testing.T) {
	_, h := sdkServer(t, nil)
	l := connect(t, h.URL)
	l.offers(4)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { _, _ = l.Call(ctx, peer.Call{Tool: "far--wait"}) }) // it is cancelled
	}
	var quick sync.WaitGroup
	for i := range 100 {
		quick.Go(func() {
			args := fmt.Sprintf(`{"i":%d}`, i)
			if got := l.text("far--echo", args); got != args {
				t.Errorf("echo answers %s, want %s", got, args)
			}
		})
	}
	quick.Wait()
	cancel()
	calls.Wait()
}

// SPEC-TOOLS 3.5: a session that the server does not know any more is made again
// at once, and the call that met it is made in the new one.
func TestSessionThatIsOver(t *testing.T) {
	for name, status := range map[string]int{"by 404, as MCP has it": http.StatusNotFound, "by 400, as others have it": http.StatusBadRequest} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			known, sessions := "", 0
			s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
				mu.Lock()
				defer mu.Unlock()
				if m.Method == "initialize" {
					sessions++
					known = fmt.Sprint("session-", sessions)
					w.Header().Set("Mcp-Session-Id", known)
					return false
				}
				if got := r.Header.Get("Mcp-Session-Id"); got != known {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"no valid session"},"id":null}`)
					return true
				}
				if got := r.Header.Get("Mcp-Protocol-Version"); got != "2025-06-18" && m.Method != "server/discover" {
					t.Errorf("%s %s has the protocol version %q", r.Method, m.Method, got)
				}
				return false
			})
			l := connect(t, s.URL)
			l.becomes("READY")
			l.offers(1)
			for range 3 {
				mu.Lock()
				known = "none"
				mu.Unlock()
				if got := l.text("far--t", `{}`); got != "called" {
					t.Errorf("the call in a session that is over gives %s", got)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if sessions != 4 || len(l.Tools()) != 1 {
				t.Errorf("there were %d sessions, and %d tools are listed", sessions, len(l.Tools()))
			}
		})
	}
}

// SPEC P4: a call in flight says so if the replica that held its capsule is gone, and the next one is made at another.
func TestP4AHolderThatIsGone(t *testing.T) {
	reached, gone := make(chan struct{}, 9), make(chan struct{}, 1)
	s := script(t, func(_ http.ResponseWriter, r *http.Request, m asked) bool {
		if m.Method != "tools/call" || len(gone) == 0 {
			return false
		}
		reached <- struct{}{}
		<-r.Context().Done()
		return true
	})
	end := make(chan struct{})
	l := connect(t, s.URL, func(o *options) {
		o.over = func(ctx context.Context) bool {
			select {
			case <-end:
				<-gone
				return true
			case <-ctx.Done():
				return false
			}
		}
	})
	l.becomes("READY")
	l.offers(1)
	gone <- struct{}{}
	var tell sync.WaitGroup
	defer tell.Wait()
	tell.Go(func() {
		<-reached
		end <- struct{}{}
	})
	_, err := l.call("far--t", `{}`, nil)
	failed := fault.From(err)
	if failed.Code != fault.NotReady || !failed.Retryable() || failed.Unsent || !strings.Contains(failed.Reason, "moved to another replica") || strings.Contains(failed.Reason, "crash") {
		t.Errorf("the call says: %+v", failed)
	}
	if got := l.text("far--t", `{}`); got != "called" {
		t.Errorf("the next call says: %s", got)
	}
}

// A 400 that is about one request does not end the session.
func TestRefusedRequest(t *testing.T) {
	s := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
		case "tools/call":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, "no such thing")
			return true
		}
		return false
	})
	l := connect(t, s.URL)
	l.becomes("READY")
	l.offers(1)
	if got := l.text("far--t", `{}`); !strings.Contains(got, "400 Bad Request: no such thing") {
		t.Errorf("the call gives %s", got)
	}
	if life := l.Life(); life.Restarts != 0 || life.State != "READY" {
		t.Errorf("the capsule is %+v", life)
	}
}

// SPEC-TOOLS 3.5: the tools stay listed while the server is away, calls fail with
// errors that may be tried again or wait, and work when it is back.
func TestServerGoesAndComesBack(t *testing.T) {
	_, h := sdkServer(t, nil)
	address := needs.Address(t)
	first := &http.Server{Handler: h.Config.Handler}
	served := listen(t, address)
	go func() { _ = first.Serve(served) }()
	t.Cleanup(func() { _ = first.Close() })
	l := connect(t, "http://"+address)
	l.becomes("READY")
	l.offers(4)
	_ = first.Close()
	l.becomes("CRASHED")
	// The next tries fail for reasons of their own.
	testkit.Eventually(t, "it is said why", func() bool { return l.log.Has("lost its server") })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	_, err := l.Call(ctx, peer.Call{Tool: "far--echo"})
	cancel()
	if f := fault.From(err); f == nil || !f.Retryable() {
		t.Errorf("meanwhile the error of a call is %v", err)
	}
	if len(l.Tools()) != 4 {
		t.Errorf("meanwhile there are %d tools", len(l.Tools()))
	}
	config := http.Server{Handler: h.Config.Handler}
	listener := listen(t, address)
	go func() { _ = config.Serve(listener) }()
	t.Cleanup(func() { _ = config.Close() })
	testkit.Eventually(t, "a call works", func() bool { return l.text("far--echo", `{}`) == `{}` })
}

// SPEC-TOOLS 3.5: reconnect.max_attempts ends in STOPPED, with the reason; a call
// finds out whether the server is there again, long before Orla tries.
func TestServerThatIsNotThere(t *testing.T) {
	address := needs.Address(t)
	l := connect(t, "http://"+address, func(o *options) {
		o.tool.Runtime.Restart = manifest.Restart{Initial: time.Hour, Max: time.Hour, MaxFailures: 1}
	})
	l.becomes("STOPPED")
	if reason := l.Life().Reason; !strings.Contains(reason, "connection refused") {
		t.Errorf("the reason is %q", reason)
	}
	_, err := l.call("far--t", `{}`, nil)
	if f := fault.From(err); f == nil || f.Code != fault.StartFailed || !f.Retryable() || !strings.Contains(f.Reason, "the next call tries again") {
		t.Errorf("a call gives %v", err)
	}
	_, h := sdkServer(t, nil)
	config := http.Server{Handler: h.Config.Handler}
	again := listen(t, address)
	go func() { _ = config.Serve(again) }()
	t.Cleanup(func() { _ = config.Close() })
	testkit.Eventually(t, "a call works", func() bool { return l.text("far--echo", `{}`) == `{}` })
}

// SPEC-TOOLS 3.5: a server that is not there when Orla starts is tried again for
// ever, and its tools appear when it comes: nobody has to call it, nor to start it.
func TestT35AServerThatComesLateIsServed(t *testing.T) {
	address := needs.Address(t)
	l := connect(t, "http://"+address, func(o *options) {
		o.tool.Runtime.Restart = manifest.Restart{Initial: time.Millisecond, Max: time.Millisecond, MaxFailures: 3}
	})
	l.becomes("STOPPED")
	if life := l.Life(); life.State == "STOPPED" && life.Next.IsZero() {
		t.Errorf("no next start is due: %+v", life)
	}
	testkit.Eventually(t, "the log has the limit", func() bool { return l.log.Has("3 failures in a row") })
	_, h := sdkServer(t, nil)
	config := http.Server{Handler: h.Config.Handler}
	late := listen(t, address)
	go func() { _ = config.Serve(late) }()
	t.Cleanup(func() { _ = config.Close() })
	l.offers(4)
	l.becomes("READY")
}

// SPEC-TOOLS 4: a server that asks for OAuth has not crashed. Status, log and
// calls say what it asks for. When it is content a call works.
func TestT35AServerThatAsksForOAuth(t *testing.T) {
	var open atomic.Bool
	s := script(t, func(w http.ResponseWriter, _ *http.Request, _ asked) bool {
		if open.Load() {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", resource_metadata="https://mcp.example/.well-known/oauth-protected-resource"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	l := connect(t, s.URL, func(o *options) { o.tool.Runtime.Restart.MaxFailures = 3 })
	l.becomes("STOPPED")
	const says = "this server asks for OAuth; run: orla login far"
	life := l.Life()
	if !strings.Contains(life.Reason, says) || life.Restarts != 0 || life.Failures != 0 || time.Until(life.Next) < time.Minute {
		t.Errorf("it is %+v", life)
	}
	_, err := l.call("far--t", `{}`, nil)
	if f := fault.From(err); f == nil || f.Code != fault.AuthInvalid || f.Retryable() || !f.Unsent || !strings.Contains(f.Reason, says) {
		t.Errorf("a call gives %v", err)
	}
	if !l.log.Has("level=WARN msg=state tool=far from=STOPPING to=STOPPED") || !l.log.Has(says) || l.log.Has("CRASHED") {
		t.Errorf("the log:\n%s", l.log)
	}
	if restarts := l.Life().Failures; restarts != 0 {
		t.Errorf("%d failures are counted", restarts)
	}
	open.Store(true)
	testkit.Eventually(t, "a call works", func() bool { return l.text("far--t", `{}`) == "called" })
}

// loggedIn is a login whose token never changes.
type loggedIn struct{}

func (loggedIn) Token(context.Context) (access secret.Value, others []secret.Value, err error) {
	return secret.NewValue("the-token"), nil, nil
}

func (loggedIn) Renew(context.Context, secret.Value) error { return nil }

// A server that does not accept the token of a login, or wants more scopes of it, says what to do.
func TestAServerThatRefusesALogin(t *testing.T) {
	for _, c := range []struct {
		status          int
		challenge, want string
		code            fault.Code
	}{
		{http.StatusUnauthorized, "", "does not accept the tokens of the login; run: orla login far", fault.AuthInvalid},
		{http.StatusForbidden, `Bearer error="insufficient_scope", scope="write the-token"`, "it asks for the scopes write [redacted]; run: orla login far, with --scope", fault.AuthForbidden},
		{http.StatusForbidden, `Bearer error="insufficient_scope`, "403", fault.AuthForbidden},
		{http.StatusForbidden, "", "403", fault.AuthForbidden},
		{http.StatusForbidden, `Bearer error="insufficient_scope", scope="write"` + strings.Repeat(", a=b", 5_000), "403", fault.AuthForbidden},
	} {
		s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
			if m.Method != "tools/call" {
				return false
			}
			if r.Header.Get("Authorization") != "Bearer the-token" {
				t.Error("the token is missing")
			}
			w.Header().Set("WWW-Authenticate", c.challenge)
			w.WriteHeader(c.status)
			return true
		})
		l := connect(t, s.URL, func(o *options) { o.auth = auth.NewLogin(loggedIn{}) })
		l.becomes("READY")
		_, err := l.call("far--t", `{}`, nil)
		if f := fault.From(err); f == nil || f.Code != c.code || f.Retryable() || !strings.Contains(f.Reason, c.want) || strings.Contains(f.Error(), "the-token") {
			t.Errorf("%d %s gives %v", c.status, c.challenge, err)
		}
		if len(c.challenge) > 10_000 && strings.Contains(err.Error(), "scopes") {
			t.Errorf("SPEC S2: a challenge that takes long was parsed: %v", err)
		}
	}
}

// A server that is idle for long enough is let go of, and a call brings it back.
func TestIdleTimeout(t *testing.T) {
	server, h := sdkServer(t, nil)
	l := connect(t, h.URL, func(o *options) { o.tool.Runtime.IdleTimeout = 50 * time.Millisecond })
	l.becomes("STOPPED")
	testkit.Eventually(t, "the server's session is over", func() bool {
		for range server.Sessions() {
			return false
		}
		return true
	})
	// Each time it may be let go of before it has listed its tools.
	testkit.Eventually(t, "a call works", func() bool { return l.text("far--echo", `{}`) == `{}` })
}

// A server without sessions, and without a stream of its own, serves as well.
func TestServerWithoutSessions(t *testing.T) {
	_, h := sdkServer(t, &mcp.StreamableHTTPOptions{Stateless: true})
	l := connect(t, h.URL)
	l.offers(4)
	client := &teller{}
	if got, err := l.call("far--count-up", `{}`, client); got != "counted" || err != nil || len(client.told) != 5 {
		t.Errorf("count_up answers %s, %v, and the client was told %q", got, err, client.told)
	}
	if got := l.text("far--ask", `{}`); !strings.Contains(got, "elicitation") {
		t.Errorf("ask answers %s", got)
	}
	if l.Life().State != "READY" {
		t.Errorf("the capsule is %+v", l.Life())
	}
}
