package listen

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// O3: once localhost is held, no other program listens on its port of [::1], also over a pause that is taken back and for
// the next program. Another address gives it up, and a port that is not free is an error. A page at another port, or at an
// address where it does not listen, may be that of another program.
func TestO3LocalhostIsHeld(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		needs.Missing(t, "this machine has no ::1")
	} else {
		_ = l.Close()
	}
	w := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") }), slog.New(slog.DiscardHandler))
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer func() { w.Cut() }()
	u, err := url.Parse(w.URL())
	if err != nil {
		t.Fatal(err)
	}
	beside := net.JoinHostPort("::1", u.Port())
	free := func() bool {
		l, err := net.Listen("tcp6", beside)
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	}
	taken, err := net.Listen("tcp6", beside)
	if err != nil {
		t.Fatal(err)
	}
	if w.HoldLocalhost(t.Context()) == nil {
		t.Error("it holds a port that another program has")
	}
	_ = taken.Close()
	for range 2 {
		if err := w.HoldLocalhost(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if free() {
		t.Error("another program can listen there")
	}
	if err := w.Pause(); err != nil {
		t.Fatal(err)
	}
	w.Hold()
	if free() {
		t.Error("another program can listen there during a pause")
	}
	if err := w.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Pause(); err != nil {
		t.Fatal(err)
	}
	w.Hold()
	given := w.End(t.Context())
	if free() {
		t.Error("another program can listen there between two Orlas")
	}
	w = New(w.server.Handler, w.log)
	if err := w.Take(given, nil); err != nil {
		t.Fatal(err)
	}
	res, err := http.Get("http://" + beside)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if err := w.HoldLocalhost(t.Context()); err != nil || free() {
		t.Errorf("the next Orla does not hold it: %v", err)
	}
	for origin, ours := range map[string]bool{
		"http://localhost:" + u.Port(): true, "http://127.0.0.1:" + u.Port(): true, "http://[::1]:" + u.Port(): true, "http://LOCALHOST.:" + u.Port(): true,
		"http://localhost": false, "https://localhost": false, "http://127.0.0.2:" + u.Port(): false, "http://[::1]:1": false,
		"http://[::ffff:127.0.0.1]:1": false, "http://127.0.0.1:1": false, "https://orla.example.com:1": true, "http://192.0.2.1:1": true,
	} {
		if err := w.Owns(t.Context(), origin); (err == nil) != ours {
			t.Errorf("it owns %s: %v", origin, err)
		}
	}
	if err := w.Listen(t.Context(), "127.0.0.2:0"); err != nil {
		t.Fatal(err)
	}
	if w.HoldLocalhost(t.Context()) == nil {
		t.Error("localhost is held, and does not lead here")
	}
	if !free() {
		t.Error("what was held for another port is held on")
	}
}
