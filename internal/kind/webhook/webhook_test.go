package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

const id = "K5XQ2WZ7MB3TNDY6RHCJVFPA4E"

// patience bounds what has to come: a call, and the answer to a poll.
const patience = time.Minute

var success = `{"request_id":"` + id + `","status":"success","result":{"n":1.0}}`

// answer is what a service says once.
type answer struct {
	status     int
	body       string
	retryAfter string
}

// service answers the POST, and then the polls in order, the last answer for ever.
type service struct {
	*httptest.Server
	mu    sync.Mutex
	post  answer
	polls []answer
	asked []asked
}

type asked struct {
	method, uri, auth, body string
	at                      time.Time
}

func serve(t testing.TB, posted answer, polls ...answer) *service {
	t.Helper()
	s := &service{post: posted, polls: polls}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a := s.note(asked{r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), string(body), time.Now()})
	if a.retryAfter != "" {
		w.Header().Set("Retry-After", a.retryAfter)
	}
	if a.status == http.StatusFound {
		w.Header().Set("Location", a.body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	if a.status != http.StatusNoContent {
		_, _ = io.WriteString(w, a.body)
	}
}

func (s *service) note(a asked) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, a)
	if a.method == http.MethodPost {
		return s.post
	}
	next := s.polls[0]
	if len(s.polls) > 1 {
		s.polls = s.polls[1:]
	}
	return next
}

func (s *service) requests() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// setup is what tools share in a test.
type setup struct {
	client    *outbound.Client
	secrets   *secret.Store
	callbacks *webhook.Callbacks
}

func newSetup(t testing.TB) *setup {
	t.Helper()
	s := &setup{client: outbound.New(outbound.Options{}), secrets: secret.New(secret.Options{}), callbacks: webhook.PlainCallbacks()}
	t.Cleanup(s.client.Close)
	return s
}

func (s *setup) rotate(key string) {
	s.secrets.Set([]secret.Secret{{Namespace: "default", Name: "key", Data: map[string]secret.Value{"value": secret.NewValue(key)}}})
}

// build makes a tool that asks every few milliseconds.
func (s *setup) build(t testing.TB, of manifest.Tool) *webhook.Tool {
	t.Helper()
	tool, err := webhook.New(of, webhook.Options{
		Options:   post.Options{Client: s.client, Auth: auth.Options{Secrets: s.secrets, Tokens: auth.NewTokens(s.client)}},
		Callbacks: s.callbacks,
	})
	if err != nil {
		t.Fatal(err)
	}
	tool.Hurry(time.Millisecond, 5*time.Millisecond, patience)
	return tool
}

func described(endpoint string) manifest.Tool {
	return manifest.Tool{Name: "build", Kind: manifest.Webhook, Resource: &manifest.Resource{Namespace: "default", Endpoint: endpoint}}
}

func withKey(of manifest.Tool) manifest.Tool {
	of.Resource.Auth = manifest.Auth{Profile: manifest.AuthBearer, Secret: secret.Ref{Namespace: "default", Name: "key", Key: "value"}}
	return of
}

func call(t testing.TB, tool *webhook.Tool, c peer.Call) (peer.Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(callid.With(t.Context(), id), patience)
	defer cancel()
	return tool.Call(ctx, c)
}

func text(t testing.TB, a peer.Answer, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if a.Result == nil || len(a.Result.Content) != 1 {
		t.Fatalf("answer = %+v", a)
	}
	return a.Result.Content[0].(*mcp.TextContent).Text
}

// SPEC-TOOLS 3.4: 200 is an envelope at once.
func TestAnAnswerMayComeAtOnce(t *testing.T) {
	s := serve(t, answer{status: 200, body: success})
	a, err := call(t, newSetup(t).build(t, described(s.URL+"/jobs")), peer.Call{Args: json.RawMessage(`{"n":1.0}`), Attempt: 2})
	if got := text(t, a, err); got != `{"n":1.0}` {
		t.Errorf("text = %s", got)
	}
	got := s.requests()
	want := `{"request_id":"` + id + `","tool":"build","action":"invoke","parameters":{"n":1.0},"context":{"task":"","agent":"","attempt":2,"namespace":"default"}}`
	if len(got) != 1 || got[0].method != http.MethodPost || got[0].uri != "/jobs" || got[0].body != want {
		t.Errorf("asked %+v; want one POST of %s", got, want)
	}
}

// SPEC-TOOLS 3.4: 202 is polled, and what is not the end keeps polling.
func TestPollingGoesOnUntilTheEnd(t *testing.T) {
	status := func(s string) string { return `{"request_id":"` + id + `","status":"` + s + `"}` }
	failed := `{"request_id":"` + id + `","status":"error","error":{"tool_code":"quota","tool_reason":"none left","retryable":true}}`
	s := serve(t, answer{status: 202, body: "queued"},
		answer{status: 202}, answer{status: 204}, answer{status: 404, body: "no such job"}, answer{status: 429}, answer{status: 500}, answer{status: 503, body: failed},
		answer{status: 200, body: status("pending")}, answer{status: 200, body: status("running")}, answer{status: 200, body: status("Success")},
		answer{status: 200, body: success})
	a, err := call(t, newSetup(t).build(t, described(s.URL+"/jobs/?v=1&key=a%2Fb")), peer.Call{})
	if got := text(t, a, err); got != `{"n":1.0}` {
		t.Errorf("text = %s", got)
	}
	got := s.requests()
	if len(got) != 11 {
		t.Fatalf("%d requests; want a POST and 10 polls", len(got))
	}
	for _, poll := range got[1:] {
		if poll.method != http.MethodGet || poll.uri != "/jobs/"+id+"?v=1&key=a%2Fb" || poll.body != "" {
			t.Errorf("polled %s %s %s", poll.method, poll.uri, poll.body)
		}
	}
}

// A service may answer 200 with a status that is not the end.
func TestAnEnvelopeMayPromiseAnAnswer(t *testing.T) {
	s := serve(t, answer{status: 200, body: `{"request_id":"` + id + `","status":"queued"}`}, answer{status: 200, body: success})
	a, err := call(t, newSetup(t).build(t, described(s.URL)), peer.Call{})
	if got := text(t, a, err); got != `{"n":1.0}` {
		t.Errorf("text = %s", got)
	}
}

// SPEC-TOOLS 3.4: what ends the wait.
func TestWhatEndsTheWait(t *testing.T) {
	failed := `{"request_id":"` + id + `","status":"error","error":{"tool_code":"quota","tool_reason":"none left","retryable":true}}`
	cases := map[string]struct {
		post, poll answer
		want       string
		retryable  bool
	}{
		"an error":                    {answer{status: 202}, answer{status: 200, body: failed}, "quota: none left", true},
		"an error at once":            {answer{status: 200, body: failed}, answer{}, "quota: none left", true},
		"denied":                      {answer{status: 202}, answer{status: 200, body: `{"request_id":"` + id + `","status":"denied"}`}, "permission_denied: ", false},
		"401":                         {answer{status: 202}, answer{status: 401}, "auth_invalid: build answered 401", false},
		"403":                         {answer{status: 202}, answer{status: 403}, "auth_forbidden: build answered 403", false},
		"410":                         {answer{status: 202}, answer{status: 410, body: "gone"}, "execution_failed: build answered 410 Gone", false},
		"410 with an error":           {answer{status: 202}, answer{status: 410, body: failed}, "quota: none left", true},
		"another's envelope":          {answer{status: 202}, answer{status: 200, body: `{"request_id":"other","status":"success"}`}, "execution_failed: the answer of build violates the tool contract: its request_id", false},
		"HTML":                        {answer{status: 202}, answer{status: 200, body: "<html>"}, "execution_failed: the answer of build violates the tool contract: it is not JSON", false},
		"a redirect to metadata":      {answer{status: 202}, answer{status: 302, body: "http://169.254.169.254/"}, "runtime_policy_invalid: ", false},
		"400 to the POST":             {answer{status: 400, body: "no"}, answer{}, "execution_failed: build answered 400 Bad Request: no", false},
		"404 to the POST":             {answer{status: 404}, answer{}, "execution_failed: build answered 404", false},
		"503 to the POST":             {answer{status: 503, retryAfter: "3"}, answer{}, "execution_failed: build answered 503", true},
		"201 to the POST":             {answer{status: 201}, answer{}, "execution_failed: the answer of build violates the tool contract: it is empty", false},
		"too much":                    {answer{status: 202}, answer{status: 200, body: strings.Repeat("x", 9<<20)}, "execution_failed: the answer is over 8388608 bytes", false},
		"another's envelope, at once": {answer{status: 200, body: `{"request_id":"other","status":"success"}`}, answer{}, "execution_failed: the answer of build violates the tool contract: its request_id", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			set := newSetup(t)
			_, err := call(t, set.build(t, described(serve(t, c.post, c.poll).URL)), peer.Call{})
			if f := fault.From(err); f == nil || !strings.HasPrefix(f.Error(), c.want) || f.Retryable() != c.retryable {
				t.Errorf("error = %v; want %s…, retryable %v", err, c.want, c.retryable)
			}
			if n := set.callbacks.Waiting(); n != 0 {
				t.Errorf("%d waits are left", n)
			}
		})
	}
}

// SPEC-TOOLS 3.4: Retry-After is obeyed, of the POST and of each poll.
func TestRetryAfterIsObeyed(t *testing.T) {
	s := serve(t, answer{status: 202, retryAfter: "1"}, answer{status: 429, retryAfter: "1"}, answer{status: 200, body: success})
	if a, err := call(t, newSetup(t).build(t, described(s.URL)), peer.Call{}); text(t, a, err) == "" {
		t.Error("no answer")
	}
	got := s.requests()
	if len(got) != 3 {
		t.Fatalf("%d requests; want 3", len(got))
	}
	for i := 1; i < 3; i++ {
		if pause := got[i].at.Sub(got[i-1].at); pause < time.Second {
			t.Errorf("pause %d = %s; want a second", i, pause)
		}
	}
}

// SPEC-TOOLS 3.4: the end of the context is the end, and says how far it came.
func TestTheTimeoutIsTheEnd(t *testing.T) {
	s := serve(t, answer{status: 202}, answer{status: 200, body: `{"request_id":"` + id + `","status":"running"}`})
	tool := newSetup(t).build(t, described(s.URL))
	late := fault.New(fault.Timeout, "build gave no answer within its timeout")
	ctx, end := context.WithCancelCause(callid.With(t.Context(), id))
	go func() {
		for len(s.requests()) < 4 { // two polls have been read
			<-time.After(time.Millisecond)
		}
		end(late)
	}()
	_, err := tool.Call(ctx, peer.Call{})
	if f := fault.From(err); f == nil || f.Code != fault.Timeout || f.Reason != `build gave no answer within its timeout; asked for it, it said: status "running"` {
		t.Errorf("error = %v", err)
	}
	if late.Reason != "build gave no answer within its timeout" {
		t.Errorf("the shared fault was changed: %v", late)
	}
}

// SPEC-TOOLS 5.3: who polls shows the secret of the moment.
func TestEachPollShowsTheSecretOfTheMoment(t *testing.T) {
	set := newSetup(t)
	set.rotate("first-0123456789")
	s := serve(t, answer{status: 202}, answer{status: 202}, answer{status: 200, body: success})
	rotating := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		if n := len(s.requests()); n == 2 {
			set.rotate("second-0123456789")
		}
	})
	front := httptest.NewServer(rotating)
	t.Cleanup(front.Close)
	if a, err := call(t, set.build(t, withKey(described(front.URL))), peer.Call{}); text(t, a, err) == "" {
		t.Error("no answer")
	}
	var shown []string
	for _, r := range s.requests() {
		shown = append(shown, r.auth)
	}
	if want := []string{"Bearer first-0123456789", "Bearer first-0123456789", "Bearer second-0123456789"}; !slices.Equal(shown, want) {
		t.Errorf("shown = %q; want %q", shown, want)
	}
}

// SPEC-TOOLS 5.2: an access token that ends while a call waits is exchanged.
func TestATokenThatEndsMeanwhileIsExchanged(t *testing.T) {
	var issued atomic.Int32
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"token-%d-0123456789","token_type":"Bearer","expires_in":3600}`, issued.Add(1))
	}))
	t.Cleanup(tokens.Close)
	s := serve(t, answer{status: 202}, answer{status: 401}, answer{status: 202}, answer{status: 200, body: success})
	set := newSetup(t)
	set.secrets.Set([]secret.Secret{{Namespace: "default", Name: "pair", Data: map[string]secret.Value{
		"client_id": secret.NewValue("orla"), "client_secret": secret.NewValue("s3cret-s3cret"),
	}}})
	of := described(s.URL)
	of.Resource.Auth = manifest.Auth{Profile: manifest.AuthOAuth2, TokenURL: tokens.URL, Secret: secret.Ref{Namespace: "default", Name: "pair"}}
	if a, err := call(t, set.build(t, of), peer.Call{}); text(t, a, err) == "" {
		t.Error("no answer")
	}
	var shown []string
	for _, r := range s.requests() {
		shown = append(shown, r.auth)
	}
	one, two := "Bearer token-1-0123456789", "Bearer token-2-0123456789"
	if want := []string{one, one, two, two}; !slices.Equal(shown, want) {
		t.Errorf("shown = %q; want %q", shown, want)
	}
}

// A secret that is taken away while a call waits ends the wait, and says so.
func TestASecretThatIsGoneEndsTheWait(t *testing.T) {
	set := newSetup(t)
	set.rotate("first-0123456789")
	s := serve(t, answer{status: 202}, answer{status: 202})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		set.secrets.Set(nil)
	}))
	t.Cleanup(front.Close)
	if _, err := call(t, set.build(t, withKey(described(front.URL))), peer.Call{}); fault.CodeOf(err) != fault.SecretResolutionFailed {
		t.Errorf("error = %v; want secret_resolution_failed", err)
	}
}

// Networks break polls; the work goes on.
func TestABrokenPollIsAskedAgain(t *testing.T) {
	s := serve(t, answer{status: 202}, answer{status: 202}, answer{status: 200, body: success})
	p := faultproxy.New(t, closing(t, s))
	p.Next(faultproxy.Fault{}, faultproxy.Fault{Refuse: true}, faultproxy.Fault{},
		faultproxy.Fault{After: 30, Then: faultproxy.Cut}, faultproxy.Fault{After: 10, Then: faultproxy.Reset})
	a, err := call(t, newSetup(t).build(t, described("http://"+p.Addr())), peer.Call{})
	if got := text(t, a, err); got != `{"n":1.0}` {
		t.Errorf("text = %s", got)
	}
	if n := p.Connections(); n != 6 {
		t.Errorf("connections = %d; want 6", n)
	}
}

// One that stalls does too. Whatever else is late is asked for again as well.
func TestAStalledPollIsAskedAgain(t *testing.T) {
	s := serve(t, answer{status: 202}, answer{status: 200, body: success})
	p := faultproxy.New(t, closing(t, s))
	p.Next(faultproxy.Fault{}, faultproxy.Fault{After: 10, Then: faultproxy.Stall})
	tool := newSetup(t).build(t, described("http://"+p.Addr()))
	tool.Hurry(5*time.Millisecond, 5*time.Millisecond, 100*time.Millisecond)
	a, err := call(t, tool, peer.Call{})
	if got := text(t, a, err); got != `{"n":1.0}` {
		t.Errorf("text = %s", got)
	}
	if n := p.Connections(); n < 3 {
		t.Errorf("connections = %d; want 3", n)
	}
}

// closing is the address of a service where each request has a connection of its own.
func closing(t *testing.T, s *service) string {
	t.Helper()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// A callback that is not a POST does not count.
func TestACallbackIsPosted(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, listen(t, webhook.NewCallbacks())+"/callbacks/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != http.MethodPost {
		t.Errorf("status = %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

// push answers a request by a callback.
func push(t *testing.T, base, id, body string, header ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, base+"/callbacks/"+id, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusNoContent && !json.Valid(said) {
		t.Errorf("%d says %q", resp.StatusCode, said)
	}
	return resp.StatusCode
}

// listen serves callbacks as Orla does.
func listen(t *testing.T, c *webhook.Callbacks) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(webhook.CallbackPattern, c)
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	return front.URL
}

// SPEC-TOOLS 3.4: a pushed envelope ends the wait at once, and nothing else does.
func TestAPushedAnswerEndsTheWait(t *testing.T) {
	set := newSetup(t)
	base := listen(t, set.callbacks)
	s := serve(t, answer{status: 202}, answer{status: 202})
	tool := set.build(t, described(s.URL))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	type result struct {
		a   peer.Answer
		err error
	}
	got := make(chan result, 1)
	go func() {
		a, err := call(t, tool, peer.Call{})
		got <- result{a, err}
	}()
	for set.callbacks.Waiting() == 0 || len(s.requests()) == 0 { // a call waits before it POSTs
		<-time.After(time.Millisecond)
	}
	for name, c := range map[string]struct {
		id, body string
		header   []string
		want     int
	}{
		"another id":          {"AAAAAAAAAAAAAAAAAAAAAAAAAA", success, nil, 404},
		"a path":              {"..%2F" + id, success, nil, 404},
		"HTML":                {id, "<html>", nil, 400},
		"nothing":             {id, "", nil, 400},
		"another's id within": {id, `{"request_id":"other","status":"success","result":1}`, nil, 400},
		"not the end":         {id, `{"request_id":"` + id + `","status":"running"}`, nil, 400},
		"too much":            {id, strings.Repeat(" ", 9<<20) + success, nil, 413},
		"a web page":          {id, success, []string{"Origin", "http://localhost"}, 403},
	} {
		if status := push(t, base, c.id, c.body, c.header...); status != c.want {
			t.Errorf("%s: status = %d; want %d", name, status, c.want)
		}
	}
	select {
	case r := <-got:
		t.Fatalf("the wait ended: %+v, %v", r.a, r.err)
	default:
	}
	if status := push(t, base, id, success); status != 204 {
		t.Errorf("status = %d; want 204", status)
	}
	r := <-got
	if got := text(t, r.a, r.err); got != `{"n":1.0}` {
		t.Errorf("text = %s", got)
	}
	if status := push(t, base, id, success); status != 404 {
		t.Errorf("a second time: status = %d; want 404", status)
	}
	if n := len(s.requests()); n != 1 {
		t.Errorf("requests = %d; want the POST alone", n)
	}
}

// SPEC N2, S2: a service may push so much for one call that does not end it, and no more: each body is read
// and decoded beside the calls of others.
func TestS2WhatIsPushedInVainIsBounded(t *testing.T) {
	set := newSetup(t)
	base := listen(t, set.callbacks)
	s := serve(t, answer{status: 202}, answer{status: 202})
	tool := set.build(t, described(s.URL))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	ctx, giveUp := context.WithCancel(callid.With(t.Context(), id))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = tool.Call(ctx, peer.Call{})
	}()
	testkit.Eventually(t, "a call waits, and has POSTed", func() bool { return set.callbacks.Waiting() > 0 && len(s.requests()) > 0 })
	running := `{"request_id":"` + id + `","status":"running","x":"` + strings.Repeat("x", 3<<20) + `"}`
	for i, want := range []int{400, 400, 400, 429, 429} {
		if status := push(t, base, id, running); status != want {
			t.Errorf("body %d: status = %d; want %d", i+1, status, want)
		}
	}
	giveUp()
	<-ended
}

// SPEC S2: what a service pushes is read one at a time for each call, and counts among
// the answers that are on their way.
func TestS2WhatIsPushedIsBounded(t *testing.T) {
	const limit, size = 32 << 20, 4 << 20
	set := newSetup(t)
	base := listen(t, set.callbacks)
	s := serve(t, answer{status: 202}, answer{status: 202})
	tool := set.build(t, described(s.URL))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	room := turns.NewRoom(limit)
	ctx, release := room.Open(t.Context(), turns.Owner{Session: "a"})
	got := make(chan string, 1)
	go func() {
		a, err := tool.Call(callid.With(ctx, id), peer.Call{})
		got <- text(t, a, err)
	}()
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("not so: " + what)
			}
		}
	}
	until("a call waits", func() bool { return set.callbacks.Waiting() > 0 && len(s.requests()) > 0 })
	slow, rest := io.Pipe()
	first := make(chan int, 1)
	go func() {
		resp, err := http.Post(base+"/callbacks/"+id, "application/json", slow)
		if err != nil {
			first <- 0
			return
		}
		_ = resp.Body.Close()
		first <- resp.StatusCode
	}()
	if _, err := io.WriteString(rest, strings.Repeat(" ", size)); err != nil {
		t.Fatal(err)
	}
	until("what came is counted", func() bool { return room.Free() <= limit-size+turns.Little+512<<10 })
	if status := push(t, base, id, success); status != 409 {
		t.Errorf("beside another: status = %d; want 409", status)
	}
	_ = rest.Close()
	if status := <-first; status != 400 {
		t.Errorf("without an envelope: status = %d; want 400", status)
	}
	until("the room is whole again", func() bool { return room.Free() == limit })

	full, releaseFull := room.Open(t.Context(), turns.Owner{Session: "b"})
	if err := turns.AccountOf(full).Need(full, limit-1<<20); err != nil {
		t.Fatal(err)
	}
	beyond, releaseBeyond := room.Open(t.Context(), turns.Owner{Session: "c"})
	if err := turns.AccountOf(beyond).Need(beyond, limit); err != nil {
		t.Fatal(err)
	}
	tool.SetRoomPatience(time.Millisecond)
	if status := push(t, base, id, strings.Repeat(" ", size)+success); status != 503 {
		t.Errorf("without room: status = %d; want 503", status)
	}
	releaseFull()
	releaseBeyond()
	tool.SetRoomPatience(time.Minute)
	if status := push(t, base, id, strings.Repeat(" ", size)+success); status != 204 {
		t.Errorf("with room: status = %d; want 204", status)
	}
	if text := <-got; text != `{"n":1.0}` {
		t.Errorf("text = %s", text)
	}
	if room.Free() > limit-size+turns.Little+512<<10 {
		t.Errorf("%d of %d bytes are free before the answer is written", room.Free(), limit)
	}
	release()
	if room.Free() != limit {
		t.Errorf("%d of %d bytes are free in the end", room.Free(), limit)
	}
}

// SPEC S2: what was pushed counts until the call is over, also while a request is still
// made for it, and while there is no room for anything else.
func TestS2WhatWasPushedIsCountedUntilItsCallIsOver(t *testing.T) {
	const limit, size = 32 << 20, 4 << 20
	set := newSetup(t)
	base := listen(t, set.callbacks)
	posted := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(posted)
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	room := turns.NewRoom(limit)
	ctx, release := room.Open(t.Context(), turns.Owner{Session: "a"})
	got := make(chan string, 1)
	go func() {
		a, err := set.build(t, described(s.URL)).Call(callid.With(ctx, id), peer.Call{})
		got <- text(t, a, err)
	}()
	<-posted
	if status := push(t, base, id, strings.Repeat(" ", size)+success); status != 204 {
		t.Errorf("status = %d; want 204", status)
	}
	if free := room.Free(); free > limit-size+turns.Little+512<<10 {
		t.Errorf("%d of %d bytes are free while the call has its answer", free, limit)
	}
	if text := <-got; text != `{"n":1.0}` {
		t.Errorf("text = %s", text)
	}
	release()
	if room.Free() != limit {
		t.Errorf("%d of %d bytes are free in the end", room.Free(), limit)
	}
}

// A callback may come before the POST is answered, and is taken once.
func TestACallbackMayBeFasterThanTheAnswer(t *testing.T) {
	set := newSetup(t)
	base := listen(t, set.callbacks)
	for name, status := range map[string]int{"before a 202": 202, "before a failure": 500, "and no answer follows": 0} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				if got := push(t, base, id, success); got != 204 {
					t.Errorf("status = %d; want 204", got)
				}
				if got := push(t, base, id, success); got != 404 && got != 409 {
					t.Errorf("a second time: status = %d; want 404 or 409", got)
				}
				if status == 0 {
					<-r.Context().Done()
					return
				}
				w.WriteHeader(status)
			}))
			t.Cleanup(s.Close)
			a, err := call(t, set.build(t, described(s.URL)), peer.Call{})
			if got := text(t, a, err); got != `{"n":1.0}` {
				t.Errorf("text = %s", got)
			}
		})
	}
}

func TestAPushedErrorIsOne(t *testing.T) {
	set := newSetup(t)
	set.rotate("sk-live-0123456789")
	base := listen(t, set.callbacks)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		push(t, base, id, `{"request_id":"`+id+`","status":"error","error":{"tool_code":"quota","tool_reason":"of sk-live-0123456789","retryable":false}}`)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(s.Close)
	tool := set.build(t, withKey(described(s.URL)))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	_, err := call(t, tool, peer.Call{})
	if f := fault.From(err); f == nil || f.Code != "quota" || f.Reason != "of [redacted]" || f.Retryable() {
		t.Errorf("error = %v", err)
	}
}

// client counts what it is told.
type client struct {
	peer.Client
	wants bool
	block bool

	mu   sync.Mutex
	told []string
}

func (c *client) WantsProgress() bool { return c.wants }

func (c *client) Notify(ctx context.Context, method string, params json.RawMessage) {
	c.mu.Lock()
	c.told = append(c.told, method+" "+string(params))
	c.mu.Unlock()
	if c.block {
		<-ctx.Done()
	}
}

func (c *client) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

// SPEC-TOOLS 3.4: the client is told how the wait goes, and does not hold it up.
func TestTheClientIsToldOfTheWait(t *testing.T) {
	for _, block := range []bool{false, true} {
		s := serve(t, answer{status: 202}, answer{status: 202}, answer{status: 200, body: `{"request_id":"` + id + `","status":"running"}`}, answer{status: 204}, answer{status: 200, body: success})
		c := &client{wants: true, block: block}
		// What is still to be told gives way to what comes next, so that no poll is
		// answered before the client has been told of the one before.
		var polls atomic.Int32
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for r.Method == http.MethodGet && len(c.heard()) <= int(polls.Load()) && r.Context().Err() == nil {
				<-time.After(time.Millisecond)
			}
			if r.Method == http.MethodGet && !block {
				polls.Add(1)
			}
			s.ServeHTTP(w, r)
		}))
		t.Cleanup(front.Close)
		tool := newSetup(t).build(t, described(front.URL))
		if !tool.Talks() {
			t.Error("the tool does not talk")
		}
		a, err := call(t, tool, peer.Call{Client: c})
		if got := text(t, a, err); got != `{"n":1.0}` {
			t.Errorf("text = %s", got)
		}
		want := []string{"202 Accepted", "202 Accepted", `status \\"running\\"`, "204 No Content"}
		if block {
			want = want[:1]
		}
		told := c.heard()
		for i := range want {
			pattern := fmt.Sprintf(`^notifications/progress \{"message":"build is at work for \d+s; it said: %s","progress":%d\}$`, want[i], i+1)
			if i >= len(told) || !regexp.MustCompile(pattern).MatchString(told[i]) {
				t.Errorf("it was not told %s", pattern)
			}
		}
		if len(told) != len(want) {
			t.Errorf("told %q", told)
		}
	}
	s := serve(t, answer{status: 202}, answer{status: 200, body: success})
	c := &client{}
	if a, err := call(t, newSetup(t).build(t, described(s.URL)), peer.Call{Client: c}); text(t, a, err) == "" || len(c.told) > 0 {
		t.Errorf("told %q; want nothing, since it was not asked for", c.told)
	}
}

// Who leaves ends the wait, and nothing is asked any more.
func TestACallerThatLeavesEndsTheWait(t *testing.T) {
	set := newSetup(t)
	s := serve(t, answer{status: 202}, answer{status: 202})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		if len(s.requests()) == 3 { // so that there is none on its way when the caller leaves
			<-r.Context().Done()
		}
	}))
	t.Cleanup(front.Close)
	tool := set.build(t, described(front.URL))
	ctx, leave := context.WithCancel(callid.With(t.Context(), id))
	done := make(chan error, 1)
	go func() {
		_, err := tool.Call(ctx, peer.Call{})
		done <- err
	}()
	for len(s.requests()) < 3 {
		<-time.After(time.Millisecond)
	}
	leave()
	if err := <-done; fault.CodeOf(err) != fault.Canceled {
		t.Errorf("error = %v; want canceled", err)
	}
	if status := push(t, listen(t, set.callbacks), id, success); status != 404 {
		t.Errorf("status = %d; want 404", status)
	}
	if n := len(s.requests()); n != 3 {
		t.Errorf("%d requests after the end", n-3)
	}
}

// Without callbacks there is polling only.
func TestCallbacksAreOptional(t *testing.T) {
	set := newSetup(t)
	set.callbacks = nil
	s := serve(t, answer{status: 202}, answer{status: 200, body: success})
	if a, err := call(t, set.build(t, described(s.URL)), peer.Call{}); text(t, a, err) != `{"n":1.0}` {
		t.Errorf("answer = %+v", a)
	}
}

// Many calls wait, each for its own answer.
func TestManyWaitAtOnce(t *testing.T) {
	set := newSetup(t)
	base := listen(t, set.callbacks)
	ids := make(chan string, 200)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID string `json:"request_id"`
		}
		_ = json.NewDecoder(r.Body).Decode(&req)
		w.WriteHeader(http.StatusAccepted)
		ids <- req.ID
	}))
	t.Cleanup(s.Close)
	tool := set.build(t, described(s.URL))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			own := callid.New()
			a, err := tool.Call(callid.With(t.Context(), own), peer.Call{})
			if err != nil {
				ids <- "" // the test goes on
			}
			if err != nil || a.Result.Content[0].(*mcp.TextContent).Text != own {
				t.Errorf("answer = %+v, error = %v; want %s", a, err, own)
			}
		})
	}
	for range 200 {
		own := <-ids
		if own == "" {
			continue // and has failed
		}
		if status := push(t, base, own, fmt.Sprintf(`{"request_id":%q,"status":"success","result":%q}`, own, own)); status != 204 {
			t.Errorf("status = %d", status)
		}
	}
	wg.Wait()
	if n := set.callbacks.Waiting(); n != 0 {
		t.Errorf("%d waits are left", n)
	}
}
