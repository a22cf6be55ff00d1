package httpfront

import (
	"net/http"
	"testing"
)

// All IPv6 addresses of a /64 network count as one address for turns and for sessions. Other
// addresses count separately (SPEC N2).
func TestN2AnIPv6NetworkCountsAsOneAddress(t *testing.T) {
	h := &Front{sessions: newSessions()}
	from := func(address string) *http.Request {
		return &http.Request{RemoteAddr: address, Header: http.Header{}}
	}
	for _, c := range []struct {
		a, b string
		one  bool
	}{
		{"[2001:db8:1:2::3]:4", "[2001:db8:1:2:3:4:5:6]:7", true},
		{"[2001:db8:1:2::3]:4", "[2001:db8:1:3::3]:4", false},
		{"[fe80::1%eth0]:4", "[fe80::2]:4", true},
		{"192.0.2.1:4", "192.0.2.1:5", true},
		{"192.0.2.1:4", "192.0.2.2:4", false},
		{"192.0.2.1:4", "[::ffff:192.0.2.1]:4", true},
		{"[::1]:4", "[::1]:5", true},
		{"@", "@", true},
	} {
		a, b := from(c.a), from(c.b)
		if h.senderOf(a).owner == h.senderOf(b).owner != c.one {
			t.Errorf("%s and %s take turns as one: %t, want %t", c.a, c.b, !c.one, c.one)
		}
		if partyOf(a, "p") == partyOf(b, "p") != c.one {
			t.Errorf("%s and %s have sessions as one: %t, want %t", c.a, c.b, !c.one, c.one)
		}
	}
	for _, same := range []string{"192.0.2.1:4", "[::1]:4"} { // most clients' addresses
		r := from(same)
		if n := testing.AllocsPerRun(10, func() { hostOf(r) }); n > 0 {
			t.Errorf("%s: %v allocations", same, n)
		}
	}
}
