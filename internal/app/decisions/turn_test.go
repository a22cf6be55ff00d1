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

// SPEC N2: what the page asks for is answered in the turn of whoever asks. Streams and logs take turns as they read.
func TestN2ThePageIsAnsweredInTurn(t *testing.T) {
	const moment = 2 * time.Millisecond
	for _, c := range []struct {
		method, path, body string
		waits              bool
	}{
		{http.MethodGet, "/v1/status", "", true},
		{http.MethodGet, "/v1/pins", "", true},
		{http.MethodGet, "/v1/visitor", "", true}, // the page's own
		{http.MethodPost, "/v1/tools/x/call", "{}", true},
		{http.MethodGet, "/v1/logs", "", false},
		{http.MethodGet, "/v1/watch", "", false},
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
				alone := true
				page := (&decisions.Decisions{SameUser: func() bool { return false }, ByLogin: func() bool { return false }}).Page(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					ctx, cancel := context.WithTimeout(q.In(t.Context(), turns.Owner{Caller: "eve", Session: "2"}), moment/2)
					defer cancel()
					end, err := turns.Begin(ctx, 1)
					if alone = err != nil; !alone {
						end()
					}
				}))
				began := time.Now()
				r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
				if c.path == "/v1/visitor" {
					page.ServeHTTP(httptest.NewRecorder(), r.WithContext(q.In(r.Context(), eve))) // it knows of no visitor
				} else {
					v := &decisions.Visitor{Name: "eve", Roles: decisions.Roles()}
					page.ServeHTTP(httptest.NewRecorder(), r.WithContext(q.In(decisions.With(r.Context(), v), eve)))
				}
				if waited := time.Since(began) >= 10*moment; waited != c.waits {
					t.Errorf("it is answered after %v", time.Since(began))
				}
				if !alone {
					t.Error("another session of the caller is answered at the same time")
				}
			})
		})
	}
}
