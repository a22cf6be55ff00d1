package legacysse

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// SPEC N3: a stream of the older transport is not for a token with other groups: its calls have those of
// its beginning.
func TestN3GroupsOfAStream(t *testing.T) {
	s := New(nil)
	s.conns["x"] = conn{nil, Caller{"ann", []string{"ops"}}}
	r := httptest.NewRequest(http.MethodPost, "http://localhost/sse?sessionid=x", nil)
	for _, c := range []struct {
		by   Caller
		want bool
	}{
		{Caller{"ann", []string{"ops"}}, true},
		{Caller{"ann", []string{"ops", "dev"}}, false},
		{Caller{"ann", []string{"dev"}}, false},
		{Caller{"bob", []string{"ops"}}, false},
	} {
		if _, ok := s.find(r, c.by); ok != c.want {
			t.Errorf("%v: %t, want %t", c.by, ok, c.want)
		}
	}
}
