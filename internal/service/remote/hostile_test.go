package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// raw answers with a type and a text.
func raw(w http.ResponseWriter, status int, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// SPEC-TOOLS §4: what a server answers to a call in place of an answer is an
// error of the taxonomy, and the session lives on.
func TestAnswersThatAreNone(t *testing.T) {
	var play atomic.Pointer[func(w http.ResponseWriter, m asked)]
	s := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
		if m.Method == "tools/call" && play.Load() != nil {
			(*play.Load())(w, m)
			return true
		}
		return false
	})
	l := connect(t, s.URL, func(o *options) { o.tool.Runtime.MaxMessage = 1 << 20 })
	l.offers(1)
	for _, test := range []struct {
		name  string
		play  func(w http.ResponseWriter, m asked)
		code  fault.Code
		retry bool
		after time.Duration
		says  string
	}{
		{"401", func(w http.ResponseWriter, _ asked) { raw(w, 401, "text/plain", "who are you") }, fault.AuthInvalid, false, 0, "who are you"},
		{"403", func(w http.ResponseWriter, _ asked) { raw(w, 403, "text/html", "<html>") }, fault.AuthForbidden, false, 0, "403 Forbidden"},
		{"429", func(w http.ResponseWriter, _ asked) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
		}, fault.RateLimited, true, 7 * time.Second, "429 Too Many Requests"},
		{"500", func(w http.ResponseWriter, _ asked) { raw(w, 500, "text/plain", "oh") }, fault.ExecutionFailed, true, 0, "500 Internal Server Error: oh"},
		{"404 without a session", func(w http.ResponseWriter, _ asked) { raw(w, 404, "text/plain", "") }, fault.ExecutionFailed, false, 0, "404 Not Found"},
		{"a page of HTML", func(w http.ResponseWriter, _ asked) { raw(w, 200, "text/html", "<html>") }, fault.ExecutionFailed, false, 0, `"text/html"`},
		{"nothing", func(w http.ResponseWriter, _ asked) { w.WriteHeader(202) }, fault.ExecutionFailed, false, 0, "without an answer (202 Accepted)"},
		{"half a JSON", func(w http.ResponseWriter, m asked) {
			raw(w, 200, "application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"resu`, m.ID))
		}, fault.ExecutionFailed, false, 0, "something that is not JSON"},
		{"an answer to another request", func(w http.ResponseWriter, _ asked) {
			raw(w, 200, "application/json", `{"jsonrpc":"2.0","id":424242,"result":{}}`)
		}, fault.ExecutionFailed, false, 0, "not an answer to it"},
		{"a JSON larger than allowed", func(w http.ResponseWriter, m asked) {
			answer(w, m, result(strings.Repeat("x", 1<<20)))
		}, fault.ExecutionFailed, false, 0, "over max_message (1048576 bytes)"},
		{"an event of 1 GiB", func(w http.ResponseWriter, _ asked) {
			sse(w)
			_, _ = io.WriteString(w, "data: ")
			block := strings.Repeat("x", 1<<20)
			for range 1 << 10 {
				if _, err := io.WriteString(w, block); err != nil {
					return
				}
			}
		}, fault.ExecutionFailed, false, 0, "over max_message (1048576 bytes)"},
		{"a stream that ends too early", func(w http.ResponseWriter, _ asked) { sse(w)(": nothing") }, fault.ExecutionFailed, true, 0, "ended before the answer"},
		{"a stream of strange events", func(w http.ResponseWriter, _ asked) {
			send := sse(w)
			send("data: {\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}")
			send("data: no JSON")
			send("data: \"text\"")
			send("event: other\ndata: {}")
			send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/unknown\"}")
		}, fault.ExecutionFailed, true, 0, "ended before the answer"},
		{"a connection that breaks", func(http.ResponseWriter, asked) { panic(http.ErrAbortHandler) }, fault.ExecutionFailed, true, 0, "closed before the answer"},
		{"a redirect to another host", func(w http.ResponseWriter, _ asked) {
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
			w.WriteHeader(307)
		}, fault.ExecutionFailed, false, 0, "redirects to another host"},
		{"a redirect that makes it a GET", func(w http.ResponseWriter, _ asked) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(302)
		}, fault.ExecutionFailed, false, 0, "a POST cannot follow"},
	} {
		t.Run(test.name, func(t *testing.T) {
			play.Store(&test.play)
			_, err := l.call("far--t", `{}`, nil)
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Code != test.code || f.Retryable() != test.retry || f.RetryAfter != test.after || !strings.Contains(f.Reason, test.says) {
				t.Errorf("the error is %+v, want %s, retryable %t, after %s, that says %s", err, test.code, test.retry, test.after, test.says)
			}
		})
	}
	play.Store(nil)
	if got := l.text("far--t", `{}`); got != "called" {
		t.Errorf("afterwards a call gives %s", got)
	}
	if life := l.Life(); life.Restarts != 0 {
		t.Errorf("the capsule was started %d times more", life.Restarts)
	}
}

// A JSON-RPC error that comes with a status other than 200 is the server's own word.
func TestErrorsOfTheServer(t *testing.T) {
	s := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
		if m.Method == "tools/call" {
			raw(w, 400, "application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool"}}`, m.ID))
			return true
		}
		return false
	})
	l := connect(t, s.URL)
	l.offers(1)
	if got := l.text("far--t", `{}`); got != "no such tool" {
		t.Errorf("the call gives %s", got)
	}
}

// A stream that breaks behind an event with an id is taken up again there, and
// the pause is what the server asks for.
func TestStreamIsTakenUpAgain(t *testing.T) {
	var ids sync.Map // of the call, by its number
	s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
		switch {
		case m.Method == "tools/call":
			ids.Store("call", string(m.ID))
			send := sse(w)
			send("id: a\nretry: 100\ndata:")
			send("id: b\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}", m.Params.Meta.Token)
			return true
		case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "b":
			send := sse(w)
			id, _ := ids.Load("call")
			send("id: c\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", id, result("in two parts"))
			return true
		}
		return false
	})
	l := connect(t, s.URL)
	l.offers(1)
	client := &teller{}
	if got, err := l.call("far--t", `{}`, client); got != "in two parts" || err != nil {
		t.Errorf("the call gives %s, %v", got, err)
	}
	if len(client.told) != 1 {
		t.Errorf("the client was told %q", client.told)
	}
}

// The answer to a call is there when it is, whether or not the server closes its
// stream; such streams do not add up.
func TestStreamsThatNeverEnd(t *testing.T) {
	needs.Time(t, "waits for seconds")
	var open atomic.Int64
	s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
		if m.Method != "tools/call" {
			return false
		}
		open.Add(1)
		defer open.Add(-1)
		send := sse(w)
		send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}", m.ID, result("there"))
		<-r.Context().Done()
		return true
	})
	l := connect(t, s.URL)
	l.offers(1)
	for range 300 { // more than may be open at once
		if got := l.text("far--t", `{}`); got != "there" {
			t.Fatalf("a call gives %s", got)
		}
	}
	testkit.Eventually(t, "the streams are closed", func() bool { return open.Load() == 0 })
}

// The server's own stream brings what it says by itself, and is opened again
// when it breaks; what comes on it twice over the limit ends nothing.
func TestTheServersOwnStream(t *testing.T) {
	var streams atomic.Int64
	lists := atomic.Int64{}
	s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
		switch {
		case r.Method == http.MethodGet:
			n := streams.Add(1)
			if n > 1 && r.Header.Get("Last-Event-Id") != fmt.Sprint("e", n-1) {
				t.Errorf("stream %d is opened behind %q", n, r.Header.Get("Last-Event-Id"))
			}
			send := sse(w)
			send("retry: 100\nid: e%d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}", n)
			if n == 2 {
				_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 1<<20)+"\n\n")
			}
			return true
		case m.Method == "tools/list":
			n := lists.Add(1)
			answer(w, m, fmt.Sprintf(`{"tools":[{"name":"t","description":"list %d","inputSchema":{"type":"object"}}]}`, n))
			return true
		}
		return false
	})
	l := connect(t, s.URL, func(o *options) { o.tool.Runtime.MaxMessage = 1 << 19 })
	testkit.Eventually(t, "the list is a later one", func() bool { return streams.Load() > 3 && lists.Load() > 1 })
	testkit.Eventually(t, "the log tells of the large event", func() bool { return l.log.Has("an event of over max_message") })
	if l.Life().Restarts != 0 {
		t.Errorf("the capsule is %+v", l.Life())
	}
}

// Handshakes that cannot come to anything say why.
func TestHandshakesThatFail(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(w http.ResponseWriter, r *http.Request, m asked) bool
		says string
		code fault.Code // of a call
	}{
		{"a page of HTML", func(w http.ResponseWriter, _ *http.Request, _ asked) bool {
			raw(w, 200, "text/html", "<html>")
			return true
		}, `the server answered with "text/html"`, fault.StartFailed},
		{"the transport of 2024-11-05", func(w http.ResponseWriter, r *http.Request, _ asked) bool {
			if r.Method == http.MethodGet {
				sse(w)("event: endpoint\ndata: /messages?id=1")
				<-r.Context().Done()
			} else {
				w.WriteHeader(404)
			}
			return true
		}, "HTTP+SSE, the transport of 2024-11-05", fault.StartFailed},
		{"a session id that is none", func(w http.ResponseWriter, _ *http.Request, m asked) bool {
			if m.Method == "initialize" {
				w.Header().Set("Mcp-Session-Id", "a b\tc")
			}
			return false
		}, "an invalid session id", fault.StartFailed},
		{"no access", func(w http.ResponseWriter, _ *http.Request, _ asked) bool {
			w.WriteHeader(401)
			return true
		}, "401 Unauthorized", fault.AuthInvalid},
		{"a redirect to the metadata of a cloud", func(w http.ResponseWriter, r *http.Request, _ asked) bool {
			w.Header().Set("Location", "http://169.254.169.254/latest")
			w.WriteHeader(307)
			return true
		}, "redirects to another host", fault.StartFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := script(t, test.play)
			l := connect(t, s.URL, func(o *options) { o.tool.Runtime.Restart.Initial = time.Minute })
			state := "CRASHED"
			if test.code == fault.AuthInvalid {
				state = "STOPPED" // whom nobody lets in has not crashed
			}
			l.becomes(state)
			if reason := l.Life().Reason; !strings.Contains(reason, test.says) {
				t.Errorf("the reason is %q, want one that says %q", reason, test.says)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := l.Call(ctx, peer.Call{Tool: "far--t"}); fault.CodeOf(err) != test.code {
				t.Errorf("a call gives %v, want %s", err, test.code)
			}
		})
	}
}

// Ten thousand tools, names that are there twice, schemas that are none and
// lists that change all the time are listed as far as they can be.
func TestHostileLists(t *testing.T) {
	var n atomic.Int64
	s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
		switch {
		case r.Method == http.MethodGet:
			send := sse(w)
			for r.Context().Err() == nil {
				send("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}")
			}
			return true
		case m.Method == "tools/list":
			var b strings.Builder
			for i := range 10_000 {
				_, _ = fmt.Fprintf(&b, `{"name":"t%d","inputSchema":{"type":"object"}},`, i)
			}
			_, _ = fmt.Fprintf(&b, `{"name":"t1"},{"name":"s1","inputSchema":"no"},{"name":5},"x"],"n":%d`, n.Add(1))
			raw(w, 200, "application/json", fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s}}`, m.ID, b.String()))
			return true
		}
		return false
	})
	l := connect(t, s.URL)
	l.offers(10_000)
	if got := l.text("far--t77", `{}`); got != "called" {
		t.Errorf("a call gives %s", got)
	}
}

// Credentials go with every request, as they are then, and are in no log.
func TestCredentials(t *testing.T) {
	var want atomic.Pointer[string]
	first, second := "planted-secret-1", "planted-secret-2"
	want.Store(&first)
	s := script(t, func(w http.ResponseWriter, r *http.Request, _ asked) bool {
		if got := r.Header.Get("Authorization"); got != "Bearer "+*want.Load() {
			raw(w, 401, "text/plain", "what is "+got+"?")
			return true
		}
		return false
	})
	secrets := secret.New(secret.Options{})
	store := func(text string) {
		secrets.Set([]secret.Secret{{Namespace: "default", Name: "key", Data: map[string]secret.Value{"value": secret.NewValue(text)}}})
	}
	store(first)
	l := connect(t, s.URL, func(o *options) {
		o.auth = auth.New(manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "default", Name: "key", Key: "value"}}, auth.Options{Secrets: secrets})
	})
	l.offers(1)
	want.Store(&second)
	_, err := l.call("far--t", `{}`, nil)
	if fault.CodeOf(err) != fault.AuthInvalid || !strings.Contains(err.Error(), "what is Bearer [redacted]?") {
		t.Errorf("with a secret of yesterday the call gives %v", err)
	}
	store(second)
	if got := l.text("far--t", `{}`); got != "called" {
		t.Errorf("with the new secret the call gives %s", got)
	}
	l.stop()
	if l.log.Has("planted") {
		t.Errorf("the log has a secret:\n%s", l.log)
	}
}

// The trace of a call goes on in a header.
func TestTraceGoesOn(t *testing.T) {
	var got atomic.Pointer[string]
	s := script(t, func(_ http.ResponseWriter, r *http.Request, m asked) bool {
		if m.Method == "tools/call" {
			parent := r.Header.Get("Traceparent")
			got.Store(&parent)
		}
		return false
	})
	l := connect(t, s.URL)
	l.offers(1)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	meta := json.RawMessage(`{"traceparent":"` + parent + `"}`)
	if _, err := l.Call(t.Context(), peer.Call{Tool: "far--t", Meta: meta}); err != nil {
		t.Fatal(err)
	}
	if *got.Load() != parent {
		t.Errorf("the header is %q", *got.Load())
	}
}

// Nothing is left of sessions that are over, however they ended.
func TestNothingIsLeft(t *testing.T) {
	needs.Time(t, "waits for seconds")
	before := runtime.NumGoroutine()
	t.Run("sessions", func(t *testing.T) {
		block := make(chan struct{})
		s := script(t, func(_ http.ResponseWriter, r *http.Request, m asked) bool {
			if m.Method == "tools/call" || r.Method == http.MethodDelete {
				select {
				case <-r.Context().Done():
				case <-block:
				}
				return true
			}
			return false
		})
		defer close(block)
		for range 3 {
			l := connect(t, s.URL)
			l.offers(1)
			var calls sync.WaitGroup
			for range 10 {
				calls.Go(func() { _, _ = l.Call(t.Context(), peer.Call{Tool: "far--t"}) }) // it is cut
			}
			testkit.Eventually(t, "the calls are in flight", func() bool { return l.Life().InFlight == 10 })
			l.stop()
			calls.Wait()
		}
	})
	testkit.Eventually(t, fmt.Sprintf("there are %d goroutines", before), func() bool { return runtime.NumGoroutine() <= before+2 })
}

// SPEC-TOOLS 5.4: no session is made with an address that no tool may reach.
func TestAddressThatIsRefused(t *testing.T) {
	l := connect(t, "http://169.254.169.254/mcp", func(o *options) { o.tool.Runtime.Restart.MaxFailures = 1 })
	l.becomes("STOPPED")
	if _, err := l.call("far--t", `{}`, nil); fault.CodeOf(err) != fault.RuntimePolicyInvalid || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("a call gives %v", err)
	}
}
