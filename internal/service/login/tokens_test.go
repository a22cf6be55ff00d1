package login_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/login"
)

// refuses is an attempt that the server refuses while a token is not good.
func refuses(good func(authorization string) bool) func(auth.Credentials) error {
	return func(c auth.Credentials) error {
		h := http.Header{}
		c.Apply(h)
		if !good(h.Get("Authorization")) {
			return fault.New(fault.AuthInvalid, "answered 401 to %s", h.Get("Authorization"))
		}
		return nil
	}
}

// access returns an attempt that only one access token passes.
func access(token string) func(auth.Credentials) error {
	return refuses(func(authorization string) bool { return authorization == "Bearer "+token })
}

// expire lets the access token end.
func (f *fake) expire() {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "far-*.json"))
	if err != nil || len(files) != 1 {
		f.t.Fatalf("the files are %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		f.t.Fatal(err)
	}
	at := strings.Index(string(text), `"expires": "`) + len(`"expires": "`)
	text = append([]byte(string(text[:at])+"2020"), text[at+4:]...)
	if err := os.WriteFile(files[0]+"~", text, 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(files[0]+"~", files[0]); err != nil {
		f.t.Fatal(err)
	}
}

// Without a login nothing is sent along. A login, a change of it and a logout count at the next attempt.
func TestTheFileCountsAtOnce(t *testing.T) {
	f := newFake(t)
	s, _ := f.source()
	none := refuses(func(authorization string) bool { return authorization == "" })
	if err := s.Do(t.Context(), none); err != nil {
		t.Errorf("without a login: %v", err)
	}
	f.login()
	if err := s.Do(t.Context(), access("access-1")); err != nil {
		t.Errorf("with a login: %v", err)
	}
	f.login()
	if err := s.Do(t.Context(), access("access-2")); err != nil {
		t.Errorf("with another login: %v", err)
	}
	if _, revoked, err := login.Logout(t.Context(), f.client, f.dir, "far", f.url+"/mcp"); err != nil || revoked == nil {
		t.Errorf("the logout gives %v, %v", revoked, err)
	}
	if err := s.Do(t.Context(), none); err != nil {
		t.Errorf("after a logout: %v", err)
	}
}

// A token goes to the endpoint of the login and to no other, whatever a file says.
func TestTokensStayAtTheirResource(t *testing.T) {
	f := newFake(t)
	f.login()
	store := login.NewStore(f.dir, f.client, nil)
	for _, c := range []struct{ server, endpoint string }{{"far", f.url + "/mcp2"}, {"other", f.url + "/mcp"}, {"far", "http://127.0.0.1:1/mcp"}} {
		if r, err := store.Find(c.server, c.endpoint); r != nil || err != nil {
			t.Errorf("%s at %s has the login %+v, %v", c.server, c.endpoint, r, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(f.dir, "far-*.json"))
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"endpoint": "` + f.url: `"endpoint": "http://127.0.0.1:1`, `"resource": "` + f.url: `"resource": "https://other.example`,
		`"token_endpoint": "` + f.url: `"token_endpoint": "http://other.example`, `"access_token": "a`: `"access_token": "\n`, `{`: `[`,
	} {
		changed := strings.Replace(string(text), from, to, 1)
		if changed == string(text) {
			t.Fatalf("there is no %s", from)
		}
		if err := os.WriteFile(files[0], []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := f.source()
		err := s.Do(t.Context(), func(auth.Credentials) error { t.Errorf("%s: sent", to); return nil })
		if got := fault.From(err); got == nil || got.Code != fault.SecretResolutionFailed || strings.Contains(got.Error(), "access-1") || strings.Contains(got.Error(), "refresh-1") {
			t.Errorf("%s: %v", to, err)
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "login")
	if err := os.WriteFile(elsewhere, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, files[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Find("far", f.url+"/mcp"); err == nil {
		t.Error("a link is followed")
	}
}

// Many calls wait for one refresh, and one that leaves does not end it.
func TestOneRefreshForMany(t *testing.T) {
	f := newFake(t)
	f.login()
	f.expire()
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.with(func() {
		f.serves["/token"] = func(w http.ResponseWriter, r *http.Request) {
			once.Do(func() { close(began) })
			<-release
			f.token(w, r)
		}
	})
	s, log := f.source()
	var done atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() { left <- s.Do(ctx, access("access-2")) }()
	<-began
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			if err := s.Do(t.Context(), access("access-2")); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	cancel()
	if err := <-left; fault.CodeOf(err) != fault.Canceled {
		t.Errorf("a call that was cancelled: %v", err)
	}
	close(release)
	calls.Wait()
	if f.count("/token") != 2 || done.Load() != 40 {
		t.Errorf("%d requests for tokens", f.count("/token"))
	}
	if form := f.forms[1]; form.Get("grant_type") != "refresh_token" || form.Get("refresh_token") != "refresh-1" || form.Get("resource") != f.url+"/mcp" || form.Get("client_id") != "registered" {
		t.Errorf("the refresh was %v", form)
	}
	if text := log.String(); strings.Contains(text, "access-") || strings.Contains(text, "refresh-") || !strings.Contains(text, "tool=far") {
		t.Errorf("the log: %s", text)
	}
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.json"))
	if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), "refresh-2") || strings.Contains(string(text), "refresh-1") {
		t.Errorf("the file has %s, %v", text, err)
	}
}

// An issuer that cannot be asked, or answers nonsense, costs no login. One that refuses does.
func TestRefreshesThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   fault.Code
		again  bool
	}{
		"down":            {503, `{}`, fault.SecretResolutionFailed, true},
		"slow down":       {429, `{"error":"slow_down"}`, fault.SecretResolutionFailed, true},
		"nonsense":        {200, `<html>refresh-1`, fault.SecretResolutionFailed, true},
		"bad request":     {400, `<html>`, fault.SecretResolutionFailed, true},
		"invalid request": {400, `{"error":"invalid_request"}`, fault.SecretResolutionFailed, true},
		"invalid grant":   {400, `{"error":"invalid_grant","error_description":"refresh-1 was used"}`, fault.AuthInvalid, false},
		"unknown client":  {401, `{"error":"invalid_client"}`, fault.AuthInvalid, false},
		"unauthorized":    {401, ``, fault.AuthInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.login()
			f.expire()
			f.with(func() {
				f.serves["/token"] = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.body)
				}
			})
			s, log := f.source()
			for range 3 { // it is asked once in a short time
				err := s.Do(t.Context(), access("access-2"))
				got := fault.From(err)
				if got == nil || got.Code != c.code || got.Retryable() != c.again || !got.Unsent || strings.Contains(got.Error(), "refresh-1") {
					t.Errorf("it fails with %v", err)
				}
				if !c.again && !strings.Contains(got.Reason, "run: orla login far") {
					t.Errorf("it fails with %v", err)
				}
			}
			if f.count("/token") != 2 {
				t.Errorf("%d requests for tokens", f.count("/token"))
			}
			f.with(func() { delete(f.serves, "/token") })
			other, _ := f.source() // Orla after a restart
			if err := other.Do(t.Context(), access("access-2")); (err == nil) != c.again {
				t.Errorf("afterwards it gives %v", err)
			}
			if text := log.String(); strings.Contains(text, "refresh-1") {
				t.Errorf("the log: %s", text)
			}
			if !c.again {
				f.login()
				if err := s.Do(t.Context(), access("access-2")); err != nil {
					t.Errorf("after another login: %v", err)
				}
			}
		})
	}
}

// An issuer of a public server must not be found on this machine at a refresh.
func TestARefreshAtALessPublicAddress(t *testing.T) {
	f := newFake(t)
	f.login()
	f.expire()
	files, _ := filepath.Glob(filepath.Join(f.dir, "far-*.json"))
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"public", "private", "", "x"} {
		changed := strings.Replace(string(text), `"class": "loopback"`, `"class": "`+class+`"`, 1)
		if err := os.WriteFile(files[0], []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := f.source()
		if got := fault.From(s.Do(t.Context(), access("access-2"))); got == nil || !strings.Contains(got.Reason, "no less public one") {
			t.Errorf("a %s server: %v", class, got)
		}
	}
	if f.count("/token") != 1 {
		t.Error("the refresh token was sent")
	}
}

// New tokens that cannot be stored are not used before they are, and are not lost.
func TestTokensThatCannotBeStored(t *testing.T) {
	f := newFake(t)
	f.login()
	f.expire()
	f.with(func() {
		f.serves["/token"] = func(w http.ResponseWriter, r *http.Request) {
			if err := os.Rename(f.dir, f.dir+".away"); err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(f.dir, nil, 0o600); err != nil {
				t.Error(err)
			}
			f.token(w, r)
		}
	})
	s, _ := f.source()
	err := s.Do(t.Context(), func(auth.Credentials) error { t.Error("they are used"); return nil })
	if got := fault.From(err); got == nil || !strings.Contains(got.Reason, "cannot be stored") || strings.Contains(got.Error(), "access-2") {
		t.Errorf("it fails with %v", err)
	}
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.dir+".away", f.dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Do(t.Context(), access("access-2")); err != nil {
		t.Errorf("it fails with %v", err)
	}
	if f.count("/token") != 2 {
		t.Errorf("%d requests for tokens", f.count("/token"))
	}
}

// A server that accepts no token causes three refreshes in a minute, and not one for each call.
func TestAServerThatAcceptsNothing(t *testing.T) {
	f := newFake(t)
	f.login()
	s, _ := f.source()
	for range 5 {
		err := s.Do(t.Context(), access("none"))
		if got := fault.From(err); got == nil || got.Code != fault.AuthInvalid || strings.Contains(got.Error(), "access-") {
			t.Errorf("it fails with %v", err)
		}
	}
	if f.count("/token") != 4 {
		t.Errorf("%d requests for tokens", f.count("/token"))
	}
}

// A required login that is not there fails before anything is sent.
func TestRequiredLogin(t *testing.T) {
	f := newFake(t)
	store := login.NewStore(f.dir, f.client, nil)
	s := auth.NewLogin(store.Tokens("far", f.url+"/mcp", true))
	err := s.Do(t.Context(), func(auth.Credentials) error { t.Error("sent"); return nil })
	if got := fault.From(err); got == nil || got.Code != fault.AuthInvalid || !got.Unsent || !strings.Contains(got.Reason, "orla login far") {
		t.Errorf("it fails with %v", err)
	}
	var none *login.Store
	none.Close()
	if err := auth.NewLogin(none.Tokens("far", f.url+"/mcp", false)).Do(t.Context(), func(auth.Credentials) error { return nil }); err != nil {
		t.Errorf("without a folder: %v", err)
	}
}

// What a server repeats of the tokens is redacted.
func TestTokensAreRedacted(t *testing.T) {
	f := newFake(t)
	f.login()
	s, _ := f.source()
	c, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Redact("access-1 and refresh-1"); got != "[redacted] and [redacted]" {
		t.Errorf("it is %q", got)
	}
}

// Records say for people how a login stands.
func TestSummaries(t *testing.T) {
	now := time.Now()
	for want, r := range map[string]login.Record{
		"logged in at https://i as ann; the access token ends": {Issuer: "https://i", Who: "ann", Expires: now.Add(time.Hour), Refresh: "x"},
		"and there is no refresh token":                        {Issuer: "https://i", Expires: now.Add(time.Hour)},
		"run: orla login far":                                  {Issuer: "https://i", Server: "far", Expires: now.Add(-time.Hour)},
		"is refreshed at the next call":                        {Issuer: "https://i", Expires: now.Add(-time.Hour), Refresh: "x"},
		"over: it said no; run: orla login far":                {Issuer: "https://i", Server: "far", Refused: "it said no"},
	} {
		if got := r.Summary(); !strings.Contains(got, want) {
			t.Errorf("%q has no %q", got, want)
		}
	}
}
