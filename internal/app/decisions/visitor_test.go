package decisions_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
)

// SPEC-TOOLS 8.7: the page of a link may register a passkey for ten minutes after it was opened, and not later.
func TestT87ALinkAdmitsForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decisions.Decisions{Passkeys: passkey.NewStore(filepath.Join(t.TempDir(), "passkeys.json")), SameUser: func() bool { return false }, ByLogin: func() bool { return false }}
		page := d.Page(http.NotFoundHandler())
		v := &decisions.Visitor{
			Name: "user:ada(1000)", Roles: decisions.Roles(), Origin: "http://localhost:8080", NoPasskeys: func() error { return nil },
			Admits: decisions.First, Entered: time.Now(),
		}
		registers := func() string {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/v1/visitor", nil)
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r.WithContext(decisions.With(r.Context(), v)))
			var info decisions.VisitorInfo
			if err := json.Unmarshal(w.Body.Bytes(), &info); err != nil {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
			return info.Register
		}
		if got := registers(); got != "nothing" {
			t.Errorf("at once a passkey needs %q", got)
		}
		time.Sleep(decisions.AdmissionLife - time.Second)
		if got := registers(); got != "nothing" {
			t.Errorf("before ten minutes a passkey needs %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := registers(); got != "link" {
			t.Errorf("after ten minutes a passkey needs %q; want a link", got)
		}
	})
}
