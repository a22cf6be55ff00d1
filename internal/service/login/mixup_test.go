package login_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/service/login"
)

// Issue 10.5: the page of one issuer and the tokens of another. Such a login needs a person's confirmation, and
// without it nothing is registered, nobody is sent anywhere and no code is sent on.
func TestEndpointsElsewhere(t *testing.T) {
	good := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(good.Close)
	host := func(at string) string { return strings.TrimPrefix(at, "http://") }
	for name, c := range map[string]struct {
		endpoint  string // that is elsewhere
		announced bool   // the issuer names itself in its answers
		confirmed bool
		want      string // of the error; "" for a login
	}{
		"the page":            {"authorization_endpoint", false, false, "--endpoints-elsewhere"},
		"the tokens":          {"token_endpoint", false, false, "--endpoints-elsewhere"},
		"the page, confirmed": {"authorization_endpoint", false, true, ""},
		"the page of an issuer that names itself": {"authorization_endpoint", true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.with(func() {
				f.meta[c.endpoint] = good.URL + "/there"
				f.meta["authorization_response_iss_parameter_supported"] = c.announced
			})
			opts := f.options(func(q url.Values) {
				if !c.announced {
					q.Del("iss")
				}
			})
			opts.Elsewhere = c.confirmed
			page, tokens, shown := "", "", false
			opts.Hosts = func(p, t string) { page, tokens = p, t }
			show := opts.Show
			opts.Show = func(open, redirect string) {
				shown = true
				if u, err := url.Parse(open); err != nil || u.Host != page || tokens != host(f.url) {
					t.Errorf("a person was told of %q and %q, and is sent to %s", page, tokens, open)
				}
				show(open, redirect)
			}
			_, err := login.Login(t.Context(), opts)
			if c.want == "" {
				if err != nil || !shown {
					t.Errorf("the login gives %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), host(good.URL)) || !strings.Contains(err.Error(), host(f.url)) {
				t.Errorf("the login gives %v; want %q and both hosts", err, c.want)
			}
			if shown || f.count("/register")+f.count("/token") > 0 {
				t.Error("the login went on")
			}
		})
	}
}

// Issue 10.5: a client that a person has registered, and its secret, are used with an issuer that a person has
// named, and not with one that only the server names.
func TestClientNeedsItsIssuer(t *testing.T) {
	f := newFake(t)
	refused := func(what, want string, opts login.Options) {
		t.Helper()
		opts.Patience = 10 * time.Second
		opts.ClientID, opts.ClientSecret = "mine", "s3cret"
		opts.Show = func(string, string) { t.Errorf("%s: a person is asked", what) }
		if _, err := login.Login(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the login gives %v; want %q", what, err, want)
		}
		if f.count("/token") > 0 {
			t.Errorf("%s: the code was sent on", what)
		}
	}
	refused("no issuer", "--issuer "+f.url, f.options(nil))
	other := f.options(nil)
	other.Issuer = "https://other.example"
	refused("another issuer", "does not name the issuer https://other.example", other)
	f.with(func() { // a server of 2025-03-26 is its own issuer
		f.serves["/mcp"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
		f.serves["/.well-known/oauth-protected-resource/mcp"] = http.NotFound
	})
	refused("another issuer, without metadata", "does not name the issuer https://other.example", other)
	opts := f.options(nil)
	opts.ClientID, opts.ClientSecret, opts.Issuer = "mine", "s3cret", f.url
	if r, err := login.Login(t.Context(), opts); err != nil || r.Client.ID != "mine" {
		t.Errorf("with its issuer: %v", err)
	}
	if r, err := login.Login(t.Context(), f.options(nil)); err != nil || r.Client.ID != "mine" { // it is kept with its issuer
		t.Errorf("the next login: %v", err)
	}
}

// Issue 10.5: all issuers know a client by its document, so without the issuer's name in its answers the code of another
// one could be taken for its own.
func TestDocumentNeedsASureIssuer(t *testing.T) {
	const document = "https://example.com/orla.json"
	f := newFake(t)
	f.with(func() {
		f.meta["client_id_metadata_document_supported"] = true
		f.meta["authorization_response_iss_parameter_supported"] = false
	})
	try := func(what, issuer, want string) {
		t.Helper()
		opts := f.options(func(q url.Values) { q.Del("iss") })
		opts.Document, opts.Issuer = document, issuer
		if r, err := login.Login(t.Context(), opts); err != nil || r.Client.ID != want {
			t.Errorf("%s: %+v, %v; want the client %s", what, r, err, want)
		}
	}
	try("an issuer that only the server names", "", "registered")
	try("an issuer that a person names", f.url, document)
	f.with(func() { delete(f.meta, "registration_endpoint") })
	opts := f.options(func(url.Values) { t.Error("a person is asked") })
	opts.Document, opts.Dir = document, filepath.Join(t.TempDir(), "logins")
	if _, err := login.Login(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "add --issuer "+f.url) {
		t.Errorf("without a registration: %v", err)
	}
}
