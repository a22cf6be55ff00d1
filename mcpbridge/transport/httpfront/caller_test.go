package httpfront

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
)

// recorder is a catalog that notes the calls of its tool.
type recorder struct {
	echo
	mu    sync.Mutex
	calls []peer.Call
}

func (r *recorder) Call(_ context.Context, c peer.Call) (peer.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	return peer.Answer{Result: &mcp.CallToolResult{}}, nil
}

func (*recorder) End(func(turns.Owner) bool) {}

func (r *recorder) last(t *testing.T) peer.Call {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) == 0 {
		t.Fatal("the tool was not called")
	}
	return r.calls[len(r.calls)-1]
}

// issuedTokens are those of an authorization server: a subject, and groups after a slash.
func issuedTokens(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	switch token {
	case "expired":
		return nil, fmt.Errorf("%w: the token has \"expired\"\n", auth.ErrInvalidToken)
	case "narrow":
		return nil, fmt.Errorf("%w: the token needs a b", ErrInsufficientScope)
	case "early":
		return nil, fmt.Errorf("%w: no keys", ErrUnavailable)
	case "broken":
		return nil, errors.New("a secret of the verifier's")
	case "static":
		return &auth.TokenInfo{UserID: "static"}, nil
	}
	subject, groups, _ := strings.Cut(token, "/")
	return &auth.TokenInfo{UserID: IssuedPrefix + subject, Extra: map[string]any{GroupsKey: strings.Split(groups, ",")}}, nil
}

// newIssued returns a front with such tokens, and its catalog.
func newIssued() (*Front, *recorder, Settings) {
	r := &recorder{}
	settings := Settings{
		Verify: issuedTokens, Loopback: true, Callers: map[string]string{"static": "1", IssuedPrefix: "1"},
		ResourceMetadata: "https://orla.example/.well-known/oauth-protected-resource/mcp", Scopes: []string{"a", "b"},
	}
	b := mcpbridge.New(r, mcpbridge.Options{Version: "1", Log: slog.New(slog.DiscardHandler), Metrics: http.NotFoundHandler()})
	return New(b, settings), r, settings
}

const (
	aCall      = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	aBeginning = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
)

// sendAs sends a POST with a token, and returns the answer.
func sendAs(h http.Handler, token, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r)
	return out
}

// SPEC N3: what a client is told when its token is missing or refused (RFC 6750 §3, RFC 9728 §5.1).
func TestN3Challenges(t *testing.T) {
	h, r, settings := newIssued()
	const metadata = `scope="a b", resource_metadata="https://orla.example/.well-known/oauth-protected-resource/mcp"`
	for token, want := range map[string]struct {
		status    int
		challenge string
	}{
		"":        {401, `Bearer realm="orla", ` + metadata},
		"expired": {401, `Bearer realm="orla", error="invalid_token", error_description="invalid token: the token has ?expired??", ` + metadata},
		"narrow":  {403, `Bearer realm="orla", error="insufficient_scope", error_description="insufficient scope: the token needs a b", ` + metadata},
		"early":   {503, ""},
		"broken":  {500, ""},
	} {
		out := sendAs(h, token, aCall)
		if got := out.Header().Values("WWW-Authenticate"); out.Code != want.status || strings.Join(got, "; ") != want.challenge {
			t.Errorf("%q: %d %q, want %d %q", token, out.Code, got, want.status, want.challenge)
		}
		if retry := out.Header().Get("Retry-After"); (retry != "") != (want.status == 503) {
			t.Errorf("%q: Retry-After is %q", token, retry)
		}
		if strings.Contains(out.Body.String(), "secret") {
			t.Errorf("%q: %s", token, out.Body)
		}
	}
	if len(r.calls) > 0 {
		t.Errorf("the tool was called: %+v", r.calls)
	}
	settings.ResourceMetadata, settings.Scopes = "", nil
	h.Configure(settings)
	if got := sendAs(h, "", aCall).Header().Get("WWW-Authenticate"); got != `Bearer realm="orla"` {
		t.Errorf("without an authorization server: %s", got)
	}
}

// SPEC N3: a call has the groups of its own token, in a session too, and static tokens have none.
func TestN3GroupsOfACaller(t *testing.T) {
	h, r, _ := newIssued()
	begun := sendAs(h, "ann/ops", aBeginning)
	session := []string{"Mcp-Session-Id", begun.Header().Get("Mcp-Session-Id")}
	if begun.Code != http.StatusOK || session[1] == "" {
		t.Fatalf("%d %s", begun.Code, begun.Body)
	}
	for _, test := range []struct {
		token  string
		in     []string
		caller string
		groups []string
	}{
		{"ann/ops,dev", nil, "oauth:ann", []string{"ops", "dev"}},
		{"ann/ops", session, "oauth:ann", []string{"ops"}},
		{"ann/dev", session, "oauth:ann", []string{"dev"}},
		{"static", nil, "static", nil},
	} {
		if out := sendAs(h, test.token, aCall, test.in...); out.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", test.token, out.Code, out.Body)
		}
		if c := r.last(t); c.Caller != test.caller || !slices.Equal(c.Groups, test.groups) || c.Owner.Caller != test.caller {
			t.Errorf("%s: the call has %q %q %q", test.token, c.Caller, c.Groups, c.Owner.Caller)
		}
	}
}

// SPEC N3: a session of one subject is not found by another, nor by a static token of the subject's name.
func TestN3SessionsOfSubjects(t *testing.T) {
	h, r, _ := newIssued()
	for _, owner := range []string{"ann", "static/"} {
		session := sendAs(h, owner, aBeginning).Header().Get("Mcp-Session-Id")
		for _, other := range []string{"bob", "Ann", "static"} {
			if out := sendAs(h, other, aCall, "Mcp-Session-Id", session); out.Code != http.StatusNotFound {
				t.Errorf("%s in the session of %s: %d", other, owner, out.Code)
			}
		}
		if out := sendAs(h, owner, aCall, "Mcp-Session-Id", session); out.Code != http.StatusOK {
			t.Errorf("%s in its own session: %d", owner, out.Code)
		}
	}
	if len(r.calls) != 2 {
		t.Errorf("there were %d calls", len(r.calls))
	}
}

// SPEC N3: when a reload changes which access tokens are accepted, the sessions of all subjects end, and
// those of static tokens go on. The same the other way round.
func TestN3OtherTokensEndSessions(t *testing.T) {
	for changed, ends := range map[string]string{IssuedPrefix: "ann", "static": "static"} {
		h, _, settings := newIssued()
		sessions := map[string]string{}
		for _, who := range []string{"ann", "static"} {
			sessions[who] = sendAs(h, who, aBeginning).Header().Get("Mcp-Session-Id")
		}
		settings.Callers = map[string]string{"static": "1", IssuedPrefix: "1"}
		settings.Callers[changed] = "2"
		h.Configure(settings)
		for who, session := range sessions {
			out := sendAs(h, who, aCall, "Mcp-Session-Id", session)
			if want := map[bool]int{true: http.StatusNotFound, false: http.StatusOK}[who == ends]; out.Code != want {
				t.Errorf("%s changed: the session of %s answers %d, want %d", changed, who, out.Code, want)
			}
		}
	}
}

// SPEC N3: a request of a subject ends when a reload accepts its tokens no more.
func TestN3OtherTokensEndRequests(t *testing.T) {
	h, _, settings := newIssued()
	began, ended := make(chan struct{}), make(chan struct{})
	h.mux.Handle("/wait", h.guarded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(ended)
	})))
	go func() {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/wait", nil)
		r.Header.Set("Authorization", "Bearer ann")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-began
	settings.Callers = map[string]string{"static": "1"}
	h.Configure(settings)
	<-ended
}
