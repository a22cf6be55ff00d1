package login_test

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/service/login"
)

// SPEC N3: browsers look for localhost at ::1 first, so an answer that is for localhost goes to nobody else there.
func TestN3LocalhostIsNobodyElses(t *testing.T) {
	other, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("there is no ::1 here: %v", err)
	}
	f := newFake(t)
	opts := f.options(nil)
	_, port, err := net.SplitHostPort(other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	opts.Redirect = "http://localhost:" + port + "/x"
	if _, err := login.Login(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "::1") || slices.Contains(f.asked, "/authorize") || slices.Contains(f.asked, "/register") {
		t.Errorf("another program listens at ::1: %v; asked: %v", err, f.asked)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	opts = f.options(nil)
	opts.Redirect = "http://localhost/x"
	show := opts.Show
	opts.Show = func(open, redirect string) {
		at, err := url.Parse(redirect)
		if err != nil {
			t.Error(err)
		}
		c, err := net.Dial("tcp6", "[::1]:"+at.Port())
		if err != nil {
			t.Errorf("nobody listens at ::1: %v", err)
		} else {
			_ = c.Close() // unused
		}
		show(open, redirect)
	}
	if _, err := login.Login(t.Context(), opts); err != nil {
		t.Error(err)
	}
}
