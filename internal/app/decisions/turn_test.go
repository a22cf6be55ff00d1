package decisions_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/call/turns"
)

// SPEC N2: what the page asks for is answered in the turn of whoever asks, which lasts as long as the answer may take to be made. What
// goes on for longer takes turns of its own.
func TestN2ThePageIsAnsweredInTurn(t *testing.T) {
	const moment = 2 * time.Millisecond
	for _, c := range []struct {
		method, path, body string
		lasts              time.Duration
	}{
		{http.MethodGet, "/v1/status", "", time.Second},
		{http.MethodGet, "/v1/pins", "", time.Second},
		{http.MethodPost, "/v1/tools/x/call", "{}", moment},
		{http.MethodPost, "/v1/tools/x/call", strings.Repeat(" ", 1<<20), 103 * moment},
		{http.MethodGet, "/v1/logs", "", 5 * moment},
		{http.MethodGet, "/v1/watch", "", 5 * moment},
	} {
		t.Run(c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := turns.NewAging(turns.NoLimit, 1, moment)
				eve := turns.Owner{Caller: "eve", Session: "1"}
				for _, owner := range []turns.Owner{eve, {Caller: "bob"}} {
					place, err := q.TakeLonger(t.Context(), owner, 10)
					if err != nil {
						t.Fatal(err)
					}
					defer place.Give()
				}
				var lasted time.Duration
				page := new(decisions.Decisions).Page(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					began := time.Now()
					end, err := turns.Begin(q.In(t.Context(), turns.Owner{Caller: "eve", Session: "2"}), 1)
					if err != nil {
						t.Error(err)
						return
					}
					end()
					lasted = time.Since(began)
				}))
				began := time.Now()
				r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
				v := &decisions.Visitor{Name: "eve", Roles: decisions.Roles()}
				page.ServeHTTP(httptest.NewRecorder(), r.WithContext(q.In(decisions.With(r.Context(), v), eve)))
				if waited := time.Since(began) - lasted; waited < 10*moment {
					t.Errorf("it is answered after %v, while another session of the caller is", waited)
				}
				if lasted != c.lasts {
					t.Errorf("another session of the caller comes after %v; want %v", lasted, c.lasts)
				}
			})
		})
	}
}

// Whose session ends while the request waits gets an error, and no empty answer.
func TestN2WhoHasWaitedInVainGetsAnError(t *testing.T) {
	q := turns.NewAging(turns.NoLimit, 1, time.Hour)
	eve := turns.Owner{Caller: "eve", Session: "1"}
	for _, owner := range []turns.Owner{eve, {Caller: "bob"}} {
		place, err := q.TakeBriefly(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		defer place.Give()
	}
	ctx, leave := context.WithCancel(q.In(t.Context(), eve))
	leave()
	w := httptest.NewRecorder()
	new(decisions.Decisions).Page(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/status", http.NoBody).WithContext(ctx))
	if w.Code == http.StatusOK || w.Body.Len() == 0 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
