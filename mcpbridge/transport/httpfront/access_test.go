package httpfront

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// SPEC N2: that a token was removed is known before the sessions of its caller end. Otherwise one that begins in that moment
// would stay.
func TestN2ARemovedTokenIsKnownAtOnce(t *testing.T) {
	for range 1000 {
		a := newAccess("x")
		r, end := a.during(httptest.NewRequest(http.MethodPost, "/mcp", nil))
		if removed(r.Context()) {
			t.Fatal("it is removed already")
		}
		a.end(errRemoved)
		if !removed(r.Context()) {
			t.Fatal("it is not known that it is removed")
		}
		end()
	}
}
