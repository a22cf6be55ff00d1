package login_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// fake is a server that asks for OAuth and its issuer, which do what a test says.
type fake struct {
	t      *testing.T
	url    string
	dir    string
	client *outbound.Client

	mu       sync.Mutex // guards the fields that follow
	resource map[string]any
	meta     map[string]any
	serves   map[string]http.HandlerFunc // in place of what it does itself
	asked    []string                    // paths
	forms    []url.Values                // that the token endpoint got
	issued   int
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, dir: filepath.Join(t.TempDir(), "logins"), client: outbound.New(outbound.Options{}), serves: map[string]http.HandlerFunc{}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Cleanup(f.client.Close)
	f.url = s.URL
	f.resource = map[string]any{"resource": f.url + "/mcp", "authorization_servers": []string{f.url}, "scopes_supported": []string{"read"}}
	f.meta = map[string]any{
		"issuer": f.url, "authorization_endpoint": f.url + "/authorize", "token_endpoint": f.url + "/token", "registration_endpoint": f.url + "/register",
		"code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
	}
	return f
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.Path)
	serve, resource, meta := f.serves[r.URL.Path], maps.Clone(f.resource), maps.Clone(f.meta)
	f.mu.Unlock()
	switch {
	case serve != nil:
		serve(w, r)
	case r.URL.Path == "/mcp":
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, f.url))
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/.well-known/oauth-protected-resource/mcp":
		answer(w, http.StatusOK, resource)
	case r.URL.Path == "/.well-known/openid-configuration":
		answer(w, http.StatusOK, meta)
	case r.URL.Path == "/register":
		answer(w, http.StatusCreated, map[string]any{"client_id": "registered", "token_endpoint_auth_method": "none"})
	case r.URL.Path == "/token":
		f.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // a test looks at what came
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forms = append(f.forms, r.PostForm)
	f.issued++
	answer(w, http.StatusOK, map[string]any{
		"access_token": fmt.Sprintf("access-%d", f.issued), "token_type": "Bearer", "expires_in": 3600, "refresh_token": fmt.Sprintf("refresh-%d", f.issued),
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who has asked may be gone
}

// with changes the fake under its lock.
func (f *fake) with(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// count returns how often a path was asked for.
func (f *fake) count(path string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.asked {
		if one == path {
			n++
		}
	}
	return n
}

// consent is what the issuer sends to the redirect URL for an authorization request.
func (f *fake) consent(open string) (redirect *url.URL, query url.Values) {
	u, err := url.Parse(open)
	if err != nil {
		f.t.Error(err)
		return nil, nil
	}
	q := u.Query()
	if redirect, err = url.Parse(q.Get("redirect_uri")); err != nil {
		f.t.Error(err)
		return nil, nil
	}
	return redirect, url.Values{"code": {"the-code"}, "state": {q.Get("state")}, "iss": {f.url}}
}

// options are those of a login by a browser that sends what change makes of the issuer's answer.
func (f *fake) options(change func(url.Values)) login.Options {
	return login.Options{
		Client: f.client, Dir: f.dir, Server: "far", Endpoint: f.url + "/mcp", UserAgent: "orla/test",
		Refused: func(why error) { f.t.Error(why) },
		Show: func(open, _ string) {
			redirect, query := f.consent(open)
			if change != nil {
				change(query)
			}
			redirect.RawQuery = query.Encode()
			go func() {
				if resp, err := http.Get(redirect.String()); err == nil {
					_ = resp.Body.Close()
				}
			}()
		},
	}
}

func (f *fake) login() *login.Record {
	f.t.Helper()
	r, err := login.Login(f.t.Context(), f.options(nil))
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// source returns the credentials of one Orla, and its log.
func (f *fake) source() (*auth.Source, *testkit.Log) {
	j := &testkit.Log{}
	store := login.NewStore(f.dir, f.client, slog.New(slog.NewTextHandler(j, nil)))
	f.t.Cleanup(store.Close)
	return auth.NewLogin(store.Tokens("far", f.url+"/mcp", false)), j
}
