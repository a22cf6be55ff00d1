package login_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/issuer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// real is the real authorization server with an MCP server, and a folder of logins.
type real struct {
	t      *testing.T
	url    string
	dir    string
	client *outbound.Client
}

func startReal(t *testing.T, env ...string) *real {
	t.Helper()
	r := &real{
		t: t, url: "http://" + needs.Start(t, "oidc", append(env, "LOGIN=1", "CLIENT_SECRET=s3cret")...).Addr,
		dir: filepath.Join(t.TempDir(), "logins"), client: outbound.New(outbound.Options{}),
	}
	t.Cleanup(r.client.Close)
	return r
}

// options are those of a login by a browser on this machine.
func (r *real) options() login.Options {
	return login.Options{
		Client: r.client, Dir: r.dir, Server: "far", Endpoint: r.url + "/mcp", UserAgent: "orla/test",
		Show: func(open, _ string) {
			go func() { // as a browser does
				to, err := issuer.Browse(r.t.Context(), open, "ann")
				if err != nil {
					r.t.Error(err)
					return
				}
				if err := visit(to.String()); err != nil {
					r.t.Error(err)
				}
			}()
		},
	}
}

// visit opens a page.
func visit(at string) error {
	resp, err := http.Get(at)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (r *real) login(mods ...func(*login.Options)) *login.Record {
	r.t.Helper()
	opts := r.options()
	for _, mod := range mods {
		mod(&opts)
	}
	got, err := login.Login(r.t.Context(), opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// source returns the credentials of one Orla.
func (r *real) source() *auth.Source {
	store := login.NewStore(r.dir, r.client, slog.New(slog.DiscardHandler))
	r.t.Cleanup(store.Close)
	return auth.NewLogin(store.Tokens("far", r.url+"/mcp", false))
}

// call calls the tool whoami.
func (r *real) call(ctx context.Context, s *auth.Source) (text string, err error) {
	err = s.Do(ctx, func(c auth.Credentials) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
		if err != nil {
			return err
		}
		c.Apply(req.Header)
		resp, err := r.client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return outbound.StatusFault("far", resp, body)
		}
		var got struct {
			Result struct{ Content []struct{ Text string } }
		}
		if err := json.Unmarshal(body, &got); err != nil {
			return err
		}
		text = got.Result.Content[0].Text
		return nil
	})
	return text, err
}

// tell makes a request of the server's own routes.
func (r *real) tell(path, body string) {
	r.t.Helper()
	resp, err := http.Post(r.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		r.t.Fatalf("%s answers %s", path, resp.Status)
	}
}

type counts struct {
	Grants              map[string]int
	Registered, Revoked int
}

func (r *real) counts() (c counts) {
	r.t.Helper()
	resp, err := http.Get(r.url + "/logins")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// Issue 10.5 with an authorization server as it comes: a person logs in, calls work, tokens are refreshed
// once for all calls and two Orlas, and a grant that is over asks for a new login.
func TestRealLogin(t *testing.T) {
	r := startReal(t)
	first, second := r.source(), r.source()
	if _, err := r.call(t.Context(), first); fault.CodeOf(err) != fault.AuthInvalid {
		t.Fatalf("without a login: %v", err)
	}
	got := r.login()
	if got.Refresh == "" || got.Client.From != login.Registered || got.Resource != r.url+"/mcp" || got.Class != "loopback" {
		t.Errorf("the login is %+v", got)
	}
	check := func(when string) {
		t.Helper()
		for _, s := range []*auth.Source{first, second} {
			if text, err := r.call(t.Context(), s); text != "ann read" || err != nil {
				t.Fatalf("%s: whoami answers %q, %v", when, text, err)
			}
		}
	}
	check("after the login")

	// The server accepts the access token no more: two Orlas refresh it once.
	r.tell("/end-access", "")
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			if _, err := r.call(t.Context(), []*auth.Source{first, second}[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	check("after a refresh")
	if n := r.counts().Grants["refresh_token"]; n != 1 {
		t.Errorf("%d refreshes were made", n)
	}
	now := r.find()
	if now.Refresh == got.Refresh || now.Access == got.Access {
		t.Error("the refresh token was not rotated, or not stored")
	}

	// Everything is revoked.
	third := r.source() // one that has refreshed nothing
	r.tell("/end-grants", "")
	_, err := r.call(t.Context(), third)
	if f := fault.From(err); f == nil || f.Code != fault.AuthInvalid || f.Retryable() || !strings.Contains(f.Reason, "orla login far") || !strings.Contains(f.Reason, "invalid_grant") {
		t.Errorf("after the end of the grant: %v", err)
	}
	if now := r.find(); now.Usable() || now.Refused == "" {
		t.Errorf("the login is still %s", now.Summary())
	}
	n := r.counts()
	if _, err := r.call(t.Context(), third); fault.CodeOf(err) != fault.AuthInvalid || r.counts().Grants["refresh_token"] != n.Grants["refresh_token"] {
		t.Errorf("a login that is over is tried again: %v", err)
	}

	// Another login works at once.
	r.login()
	check("after another login")
	if _, err := r.call(t.Context(), third); err != nil {
		t.Errorf("after another login: %v", err)
	}
}

func (r *real) find() *login.Record {
	r.t.Helper()
	got, err := login.NewStore(r.dir, nil, nil).Find("far", r.url+"/mcp")
	if err != nil || got == nil {
		r.t.Fatalf("the login is %v, %v", got, err)
	}
	return got
}

// A second login uses the registration of the first one. A logout revokes the tokens.
func TestRealLogout(t *testing.T) {
	r := startReal(t)
	first := r.login()
	if got := r.login(); got.Client != first.Client || got.Who != "" {
		t.Errorf("the second login is %+v, the first was %+v", got, first)
	}
	if n := r.counts(); n.Registered != 1 || n.Grants["authorization_code"] != 2 {
		t.Errorf("two logins: %+v", n)
	}
	at, err := url.Parse(first.Client.Redirect)
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", at.Host)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.login(); got.Client.Redirect == first.Client.Redirect || r.counts().Registered != 2 {
		t.Errorf("while somebody else has the port, the login is %+v", got)
	}
	_ = taken.Close()

	// Other scopes need another registration. With openid, the issuer says who it is.
	got := r.login(func(o *login.Options) { o.Scopes = []string{"openid", "read"} })
	if got.Who != "ann" || r.counts().Registered != 3 || !strings.Contains(got.Summary(), "as ann; ") {
		t.Errorf("with openid, the login is %+v", got)
	}
	s := r.source()
	if _, err := r.call(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	stolen := r.find()
	was, revoked, err := login.Logout(t.Context(), r.client, r.dir, "far", r.url+"/mcp")
	if !was || revoked != nil || err != nil {
		t.Errorf("a logout gives %v, %v, %v", was, revoked, err)
	}
	if n := r.counts(); n.Revoked != 1 {
		t.Errorf("%d tokens were revoked", n.Revoked)
	}
	if _, err := r.call(t.Context(), s); fault.CodeOf(err) != fault.AuthInvalid {
		t.Errorf("after the logout: %v", err)
	}
	resp, err := http.PostForm(r.url+"/token", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {stolen.Refresh}, "client_id": {stolen.Client.ID}})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the refresh token still works: %s", resp.Status)
	}
	if was, _, err := login.Logout(t.Context(), r.client, r.dir, "far", r.url+"/mcp"); was || err != nil {
		t.Errorf("a second logout gives %v, %v", was, err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "*.json")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// Access tokens that end soon are refreshed in time, and each refresh token is used once.
func TestRealShortTokens(t *testing.T) {
	needs.Time(t, "waits for tokens to end")
	r := startReal(t, "TOKEN_SECONDS=4")
	r.login()
	s := r.source()
	seen := map[string]bool{}
	testkit.Eventually(t, "three tokens have been used", func() bool {
		if _, err := r.call(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		seen[r.find().Access] = true
		if !r.find().Valid() {
			t.Fatal("a call used a token that has ended")
		}
		return len(seen) == 3
	})
}

// The file of a login is this user's alone, and nothing else is accepted.
func TestRealFile(t *testing.T) {
	r := startReal(t)
	r.login()
	files, err := filepath.Glob(filepath.Join(r.dir, "far-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the files are %v, %v", files, err)
	}
	for path, want := range map[string]os.FileMode{files[0]: 0o600, r.dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
	s := r.source()
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660} {
		if err := os.Chmod(files[0], mode); err != nil {
			t.Fatal(err)
		}
		_, err := r.call(t.Context(), s)
		if f := fault.From(err); f == nil || f.Code != fault.SecretResolutionFailed || !f.Unsent || !strings.Contains(f.Reason, "chmod 600") {
			t.Errorf("with mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(files[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.call(t.Context(), s); err != nil {
		t.Errorf("after the mode was fixed: %v", err)
	}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := r.call(t.Context(), r.source()); fault.CodeOf(err) != fault.SecretResolutionFailed {
		t.Errorf("with an open folder: %v", err)
	}
}
