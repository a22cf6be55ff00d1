package listen

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// SPEC Q1: after a pause that is taken back, connections from before and from meanwhile are served, and none is closed.
func TestQ1APauseThatIsTakenBack(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	w := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-goOn
		}
		_, _ = io.WriteString(w, "an answer")
	}), slog.New(slog.DiscardHandler))
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer w.Cut()
	connect := connector(t, w)
	send := func(c net.Conn, path string) {
		t.Helper()
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(what string, c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "an answer" {
			t.Errorf("%s: %q, %v", what, body, err)
		}
		_ = res.Body.Close()
	}
	idle, fresh, busy := connect(), connect(), connect()
	for range 3 {
		send(idle, "/")
		hear("before", idle)
		send(busy, "/slow")
		<-entered
		if err := w.Pause(); err != nil {
			t.Fatal(err)
		}
		w.Hold()
		meanwhile := connect()
		send(meanwhile, "/")
		send(idle, "/")
		if err := w.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(fresh, "/")
		hear("a connection on which nothing was asked", fresh)
		hear("one that was idle", idle)
		hear("one that came meanwhile", meanwhile)
		goOn <- struct{}{}
		hear("one with a request", busy)
		send(busy, "/")
		hear("the next request on it", busy)
	}
}
