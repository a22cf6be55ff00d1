package login_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/login"
)

// SPEC N3: a browser is started with an address that says nothing of the login, and is good once.
func TestN3TheBrowsersAddressIsGoodOnce(t *testing.T) {
	f := newFake(t)
	opts := f.options(nil)
	show, shown := opts.Show, ""
	opts.Show = func(open, _ string) { shown = open }
	opts.Open = func(address string) {
		u, err := url.Parse(shown)
		if err != nil {
			t.Error(err)
			return
		}
		for name, values := range u.Query() {
			for _, value := range values {
				if len(value) > 8 && strings.Contains(address, value) {
					t.Errorf("%s has the %s of the login", address, name)
				}
			}
		}
		once := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		for _, try := range []struct {
			method string
			status int
			to     string
		}{{http.MethodPost, http.StatusNotFound, ""}, {http.MethodGet, http.StatusSeeOther, shown}, {http.MethodGet, http.StatusGone, ""}} {
			req, err := http.NewRequestWithContext(t.Context(), try.method, address, nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := once.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != try.status || resp.Header.Get("Location") != try.to || resp.Header.Get("Cache-Control") != "no-store" || try.to == "" && strings.Contains(string(text), f.url) {
				t.Errorf("%s: %s to %q: %s", try.method, resp.Status, resp.Header.Get("Location"), text)
			}
		}
		show(shown, "")
	}
	if _, err := login.Login(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
}
