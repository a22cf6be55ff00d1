package post_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/manifest"
)

const id = "K5XQ2WZ7MB3TNDY6RHCJVFPA4E"

// service is a server that remembers what it was asked.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	asked []asked
}

type asked struct {
	method, path string
	header       http.Header
	body         string
}

// serve starts a service that answers by answer.
func serve(t *testing.T, answer http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.asked = append(s.asked, asked{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body)})
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// says answers with a status, a type and a body.
func says(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// described is a tool at an endpoint.
func described(kind manifest.Kind, endpoint string) manifest.Tool {
	return manifest.Tool{
		Name: "web_search", Kind: kind, InputSchema: json.RawMessage(`{"type":"object"}`),
		Resource: &manifest.Resource{Namespace: "default", Endpoint: endpoint},
	}
}

const key = "sk-live-0123456789abcdef"

// build makes a tool that may use the secret "key".
func build(t *testing.T, of manifest.Tool) *post.Tool {
	t.Helper()
	secrets := secret.New(secret.Options{})
	secrets.Set([]secret.Secret{{Namespace: "default", Name: "key", Data: map[string]secret.Value{"value": secret.NewValue(key)}}})
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	tool, err := post.New(of, post.Options{Client: client, Auth: auth.Options{Secrets: secrets, Tokens: auth.NewTokens(client)}, UserAgent: "orla/test"})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// call calls a tool once.
func call(t *testing.T, tool *post.Tool, args string) (peer.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(callid.With(t.Context(), id), time.Minute)
	defer cancel()
	return tool.Call(ctx, peer.Call{Tool: "web_search", Args: json.RawMessage(args), Caller: "anonymous", Task: "t-1", Attempt: 2})
}

// text is the one block of an answer.
func text(t *testing.T, a peer.Answer, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if a.Result == nil || len(a.Result.Content) != 1 {
		t.Fatalf("answer = %+v", a)
	}
	block, ok := a.Result.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("content = %T", a.Result.Content[0])
	}
	return block.Text
}

// SPEC-TOOLS 3.1: the body is the arguments.
func TestHTTPSendsTheArguments(t *testing.T) {
	s := serve(t, says(200, "application/json", `{"hits":12345678901234567890}`))
	tool := build(t, described(manifest.HTTP, s.URL+"/search?v=1"))
	place, _ := trace.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=b")
	ctx := trace.With(callid.With(t.Context(), id), place)
	a, err := tool.Call(ctx, peer.Call{Args: json.RawMessage(`{"q": "<x>", "n": 1.10}`)})
	if got := text(t, a, err); got != `{"hits":12345678901234567890}` {
		t.Errorf("text = %s", got)
	}
	if got := fmt.Sprintf("%s", a.Result.StructuredContent); got != `{"hits":12345678901234567890}` {
		t.Errorf("structured content = %s", got)
	}
	got := s.requests()[0]
	if got.method != http.MethodPost || got.path != "/search?v=1" || got.body != `{"q": "<x>", "n": 1.10}` {
		t.Errorf("asked %s %s %s", got.method, got.path, got.body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/*;q=0.9, */*;q=0.8", "User-Agent": "orla/test",
		"Traceparent": place.Parent(), "Tracestate": "a=b", "X-Tool-Contract-Version": "", "Authorization": "", "Idempotency-Key": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s = %q; want %q", name, got.header.Get(name), want)
		}
	}
	if a, err := call(t, tool, ""); err != nil || a.Result == nil || s.requests()[1].body != "{}" {
		t.Errorf("no arguments: sent %q, error %v", s.requests()[1].body, err)
	}
}

// SPEC-TOOLS 3.2: the envelope goes out, and nothing but an envelope is taken.
func TestExternalSpeaksEnvelopes(t *testing.T) {
	s := serve(t, says(200, "application/json", `{"request_id":"`+id+`","status":"success","result":{"data":1.0}}`))
	of := described(manifest.External, s.URL)
	of.Resource.Auth = manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "default", Name: "key", Key: "value"}}
	a, err := call(t, build(t, of), `{"q":1.0}`)
	if got := text(t, a, err); got != `{"data":1.0}` {
		t.Errorf("text = %s", got)
	}
	got := s.requests()[0]
	want := `{"request_id":"` + id + `","tool":"web_search","action":"invoke","parameters":{"q":1.0},"auth":{"type":"bearer","token":"` + key + `"},` +
		`"context":{"task":"t-1","agent":"anonymous","attempt":2,"namespace":"default"}}`
	if got.body != want {
		t.Errorf("sent %s\nwant %s", got.body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "X-Tool-Contract-Version": "v1", "Authorization": "Bearer " + key,
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s = %q; want %q", name, got.header.Get(name), want)
		}
	}
}

// SPEC-TOOLS 3.1, 3.2 and the bad input of strangers.
func TestWhatServicesAnswer(t *testing.T) {
	const jsonType = "application/json"
	failed := `"status":"error","error":{"tool_code":"quota","tool_reason":"none left","retryable":true}}`
	cases := map[string]struct {
		answer         http.HandlerFunc
		http, external string // a text, or "!" and the beginning of the error
	}{
		"HTML":                        {says(200, "text/html", "<html>Sign in</html>"), "<html>Sign in</html>", "!execution_failed: the answer of web_search violates the tool contract: it is not JSON"},
		"nothing":                     {says(200, jsonType, ""), "", "!execution_failed: the answer of web_search violates the tool contract: it is empty"},
		"204":                         {says(204, jsonType, ""), "", "!execution_failed: the answer of web_search violates the tool contract: it is empty"},
		"half a JSON":                 {says(200, jsonType, `{"request_id":"`+id+`","sta`), `{"request_id":"` + id + `","sta`, "!execution_failed: the answer of web_search violates the tool contract: it is not JSON"},
		"data":                        {says(200, jsonType, `{"status":"queued"}`), `{"status":"queued"}`, "!execution_failed: the answer of web_search violates the tool contract: it has no request_id"},
		"202 with data":               {says(202, jsonType, `{"job":7}`), `{"job":7}`, "!execution_failed: the answer of web_search violates the tool contract: it has no request_id"},
		"an envelope":                 {says(200, jsonType, `{"request_id":"`+id+`","status":"ok","output":{"result":"done"}}`), "done", "done"},
		"another request's id":        {says(200, jsonType, `{"request_id":"other","status":"success","result":"theirs"}`), "theirs", "!execution_failed: the answer of web_search violates the tool contract: its request_id is not this call's"},
		"200 with an error":           {says(200, jsonType, `{"request_id":"`+id+`",`+failed), "!quota: none left", "!quota: none left"},
		"an error without an id":      {says(200, jsonType, `{`+failed), "!quota: none left", "!execution_failed: the answer of web_search violates the tool contract: it has no request_id"},
		"400":                         {says(400, "text/plain", "no such city"), "!execution_failed: web_search answered 400 Bad Request: no such city", "!execution_failed: web_search answered 400 Bad Request: no such city"},
		"400 with an error":           {says(400, jsonType, `{"request_id":"`+id+`",`+failed), "!quota: none left", "!quota: none left"},
		"503 with another's error":    {says(503, jsonType, `{"request_id":"other",`+failed), "!quota: none left", "!execution_failed: web_search answered 503 Service Unavailable"},
		"500 with a success":          {says(500, jsonType, `{"request_id":"`+id+`","status":"success","result":1}`), "!execution_failed: web_search answered 500", "!execution_failed: web_search answered 500"},
		"401":                         {says(401, jsonType, `{"request_id":"`+id+`",`+failed), "!auth_invalid: none left", "!auth_invalid: none left"},
		"403":                         {says(403, "text/html", "<html>"), "!auth_forbidden: web_search answered 403 Forbidden", "!auth_forbidden: web_search answered 403 Forbidden"},
		"429":                         {says(429, "text/plain", ""), "!rate_limited: web_search answered 429", "!rate_limited: web_search answered 429"},
		"502":                         {says(502, "text/plain", ""), "!execution_failed: web_search answered 502", "!execution_failed: web_search answered 502"},
		"304, which nobody asked for": {says(304, "text/plain", ""), "!execution_failed: web_search answered 304", "!execution_failed: web_search answered 304"},
		"over max_output":             {says(200, "text/plain", strings.Repeat("x", 2001)), "!execution_failed: the answer is over 2000 bytes", "!execution_failed: the answer is over 2000 bytes"},
		"an error over max_output":    {says(400, "text/plain", strings.Repeat("x", 2001)), "!execution_failed: web_search answered 400 Bad Request: xxx", "!execution_failed: web_search answered 400 Bad Request: xxx"},
	}
	for name, c := range cases {
		for kind, want := range map[manifest.Kind]string{manifest.HTTP: c.http, manifest.External: c.external} {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				of := described(kind, serve(t, c.answer).URL)
				of.Run.MaxOutput = 2000
				a, err := call(t, build(t, of), "{}")
				if begin, wantsError := strings.CutPrefix(want, "!"); wantsError {
					if err == nil || !strings.HasPrefix(err.Error(), begin) {
						t.Errorf("answer = %+v, error = %v; want %s…", a, err, begin)
					}
					return
				}
				if got := text(t, a, err); got != want {
					t.Errorf("text = %q; want %q", got, want)
				}
			})
		}
	}
}

// SPEC-TOOLS 4: what may be tried again, and when.
func TestWhatMayBeTriedAgain(t *testing.T) {
	cases := map[string]struct {
		status     int
		retryAfter string
		body       string
		retryable  bool
		pause      time.Duration
	}{
		"429":                        {429, "7", "", true, 7 * time.Second},
		"503":                        {503, "3", "", true, 3 * time.Second},
		"500":                        {500, "", "", true, 0},
		"404":                        {404, "", "", false, 0},
		"401":                        {401, "", "", false, 0},
		"an envelope beside 400":     {400, "5", `{"status":"error","error":{"tool_code":"busy","retryable":true}}`, true, 5 * time.Second},
		"an envelope beside 503":     {503, "5", `{"status":"error","error":{"tool_code":"busy","retryable":false}}`, false, 5 * time.Second},
		"an envelope beside 200":     {200, "9", `{"status":"error","error":{"tool_code":"rate_limited"}}`, true, 9 * time.Second},
		"a last envelope beside 200": {200, "9", `{"status":"error","error":{"tool_code":"invalid_input"}}`, false, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				says(c.status, "application/json", c.body)(w, nil)
			})
			_, err := call(t, build(t, described(manifest.HTTP, s.URL)), "{}")
			if f := fault.From(err); f == nil || f.Retryable() != c.retryable || f.RetryAfter != c.pause {
				t.Errorf("fault = %+v; want retryable %v, after %s", f, c.retryable, c.pause)
			}
		})
	}
}

// A gigabyte is an error and no gigabyte of memory, however it is packed.
func TestAnEndlessAnswerTakesNoMemory(t *testing.T) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	flood := func(w io.Writer) {
		for range 1 << 10 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"plain": func(w http.ResponseWriter, _ *http.Request) { flood(w) },
		"packed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			flood(packed)
			_ = packed.Close()
		},
		"as an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			flood(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tool := build(t, described(manifest.HTTP, serve(t, answer).URL))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := call(t, tool, "{}")
			runtime.ReadMemStats(&after)
			if f := fault.From(err); f == nil || f.Code != fault.ExecutionFailed || f.Retryable() || len(f.Reason) > 1000 {
				t.Errorf("error = %v", err)
			}
			if name != "as an error" && !strings.Contains(fmt.Sprint(err), "8388608 bytes") {
				t.Errorf("error = %v; want it to tell the limit", err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 128<<20 {
				t.Errorf("the call took %d MiB", took>>20)
			}
		})
	}
}

// SPEC-TOOLS 5.4: no redirect leads to where nothing may be reached.
func TestARedirectToTheMetadataAddressIsRefused(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect)
	})
	_, err := call(t, build(t, described(manifest.HTTP, s.URL)), "{}")
	if f := fault.From(err); f == nil || f.Retryable() {
		t.Errorf("error = %v; want a refusal", err)
	}
	_, err = call(t, build(t, described(manifest.HTTP, "http://169.254.169.254/")), "{}")
	if fault.CodeOf(err) != fault.RuntimePolicyInvalid {
		t.Errorf("error = %v; want runtime_policy_invalid", err)
	}
}

// Networks break connections: each way is an error that may be tried again, and
// the next call is well.
func TestBrokenConnections(t *testing.T) {
	s := serve(t, says(200, "text/plain", strings.Repeat("x", 50_000)))
	cases := map[string]faultproxy.Fault{
		"reset at once":           {Refuse: true},
		"reset before the answer": {Swallow: true},
		"cut in the header":       {After: 20, Then: faultproxy.Cut},
		"cut in the body":         {After: 20_000, Then: faultproxy.Cut},
		"reset in the body":       {After: 20_000, Then: faultproxy.Reset},
		"429 from between":        {Instead: "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		"503 from between":        {Instead: "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"},
		"no HTTP":                 {Instead: "SSH-2.0-OpenSSH\r\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := faultproxy.New(t, s.Listener.Addr().String())
			tool := build(t, described(manifest.HTTP, "http://"+p.Addr()))
			p.Next(c)
			_, err := call(t, tool, "{}")
			if f := fault.From(err); f == nil || !f.Retryable() {
				t.Errorf("error = %+v; want one that may be tried again", f)
			}
			a, err := call(t, tool, "{}")
			if got := text(t, a, err); len(got) != 50_000 {
				t.Errorf("the next call: %d bytes", len(got))
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		gone := httptest.NewServer(nil)
		gone.Close()
		_, err := call(t, build(t, described(manifest.HTTP, gone.URL)), "{}")
		if f := fault.From(err); f == nil || !f.Retryable() || !f.Unsent {
			t.Errorf("error = %+v; want one of a call that was never sent", f)
		}
	})
}

// SPEC-TOOLS 3.1: the only deadline is the context's, whose cause is the error.
func TestTheDeadlineIsTheContexts(t *testing.T) {
	stuck := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	})
	defer close(stuck)
	tool := build(t, described(manifest.External, s.URL))
	late := fault.New(fault.Timeout, "web_search gave no answer within its timeout of 1ms")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, late)
	defer cancel()
	if _, err := tool.Call(ctx, peer.Call{}); !errors.Is(err, late) {
		t.Errorf("error = %v; want %v", err, late)
	}

	p := faultproxy.New(t, s.Listener.Addr().String())
	p.Always(faultproxy.Fault{After: 10, Then: faultproxy.Stall})
	tool = build(t, described(manifest.External, "http://"+p.Addr()))
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, leave)
	if _, err := tool.Call(ctx, peer.Call{}); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("error = %v; want canceled", err)
	}
}

// SPEC-TOOLS 5: secrets are in no reason, also where a service repeats them.
func TestNoReasonHoldsASecret(t *testing.T) {
	for kind, answer := range map[manifest.Kind]http.HandlerFunc{
		manifest.HTTP:     says(400, "text/plain", "no such key: "+key),
		manifest.External: says(200, "application/json", `{"request_id":"`+key+`"}`),
	} {
		of := described(kind, serve(t, answer).URL)
		of.Resource.Auth = manifest.Auth{Profile: manifest.AuthAPIKey, HeaderName: "X-Key", Secret: secret.Ref{Namespace: "default", Name: "key", Key: "value"}}
		_, err := call(t, build(t, of), "{}")
		if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "[redacted]") {
			t.Errorf("%s: error = %v", kind, err)
		}
	}
}

// SPEC-TOOLS 5.2: an access token that is not accepted is exchanged once.
func TestOAuthIsTriedOnceMoreAfter401(t *testing.T) {
	var issued atomic.Int32
	tokens := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		says(200, "application/json", fmt.Sprintf(`{"access_token":"token-%d-0123456789","token_type":"Bearer","expires_in":3600}`, issued.Add(1)))(w, nil)
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-2-0123456789" {
			says(401, "application/json", `{"status":"error","error":{"tool_code":"expired"}}`)(w, r)
			return
		}
		says(200, "text/plain", "well")(w, r)
	})
	of := described(manifest.HTTP, s.URL)
	of.Resource.Auth = manifest.Auth{Profile: manifest.AuthOAuth2, TokenURL: tokens.URL, Secret: secret.Ref{Namespace: "default", Name: "pair"}}
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	secrets := secret.New(secret.Options{})
	secrets.Set([]secret.Secret{{Namespace: "default", Name: "pair", Data: map[string]secret.Value{"client_id": secret.NewValue("orla"), "client_secret": secret.NewValue("s3cret-s3cret")}}})
	tool, err := post.New(of, post.Options{Client: client, Auth: auth.Options{Secrets: secrets, Tokens: auth.NewTokens(client)}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := call(t, tool, "{}")
	if got := text(t, a, err); got != "well" {
		t.Errorf("text = %q", got)
	}
	if n := len(s.requests()); n != 2 {
		t.Errorf("requests = %d; want 2", n)
	}
}

// Connections are used again, also after answers that were errors.
func TestConnectionsAreReused(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) % 3 {
		case 0:
			says(500, "text/plain", strings.Repeat("x", 60_000))(w, r)
		case 1:
			says(200, "application/json", `{}`)(w, r)
		default:
			says(404, "text/plain", "")(w, r)
		}
	})
	p := faultproxy.New(t, s.Listener.Addr().String())
	tool := build(t, described(manifest.HTTP, "http://"+p.Addr()))
	for range 30 {
		_, _ = call(t, tool, "{}")
	}
	if n := p.Connections(); n != 1 {
		t.Errorf("connections = %d; want 1", n)
	}
}

// SPEC-TOOLS 3.1: bytes in a coding that was not asked for are nobody's result.
func TestACodingThatNobodyAskedForIsRefused(t *testing.T) {
	service := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		says(http.StatusOK, "text/plain", "\x0b\x02\x80hello\x03")(w, r)
	})
	for _, kind := range []manifest.Kind{manifest.HTTP, manifest.External} {
		_, err := call(t, build(t, described(kind, service.URL)), `{}`)
		f := fault.From(err)
		if f == nil || f.Code != fault.ExecutionFailed || f.Retryable() || !strings.Contains(f.Reason, `"br"`) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}

// SPEC S2, N2: a call waits for a place among the requests that its service works on,
// and gives it back; another caller finds one.
func TestS2CallsWaitForTheirService(t *testing.T) {
	s := serve(t, says(200, "text/plain", "well"))
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	tool, err := post.New(described(manifest.HTTP, s.URL+"/search"), post.Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	big, service := turns.Owner{Caller: "big"}, client.Service(s.URL)
	places := 0
	for service.Begin(ended, big) == nil {
		places++
	}
	ctx, cancel := context.WithTimeout(callid.With(t.Context(), id), 100*time.Millisecond)
	defer cancel()
	_, err = tool.Call(ctx, peer.Call{Args: json.RawMessage(`{}`), Owner: big})
	if n := len(s.requests()); fault.CodeOf(err) != fault.Timeout || n != 0 {
		t.Errorf("a call without a place: %v, and the service got %d requests; want a timeout and none", err, n)
	}
	for range 2 * places {
		if _, err := tool.Call(callid.With(t.Context(), id), peer.Call{Args: json.RawMessage(`{}`), Owner: turns.Owner{Caller: "small"}}); err != nil {
			t.Fatalf("a call of another caller: %v", err)
		}
	}
}
