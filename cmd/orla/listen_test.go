package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A connection that was accepted before Orla stops is answered, though its
// request comes when no more are accepted (SPEC H4, K1).
func TestH4AConnectionThatWasAcceptedIsAnswered(t *testing.T) {
	w := newWeb(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") }), slog.New(slog.DiscardHandler))
	w.first = time.Minute
	if err := w.listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	address := w.current.Addr().String()
	connect := func() net.Conn {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn) {
		t.Helper()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != "an answer" {
			t.Errorf("the answer is %q, %v", body, err)
		}
		_ = res.Body.Close()
	}
	fresh := connect()
	ask(connect()) // they are accepted in turn
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.shutdown(context.Background())
	}()
	w.serving.Wait() // nothing is accepted any more
	ask(fresh)
	<-over
}

// Orla stops though its connections are as many as it may have, and more wait
// (SPEC H4).
func TestH4AFullServerStops(t *testing.T) {
	w := newWeb(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	w.most = 1
	if err := w.listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", w.current.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // the connection stays open, and is the one that there may be
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.shutdown(context.Background())
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it does not stop")
	}
}

// slowToClose is a listener that goes on accepting for a while when it is closed.
type slowToClose struct {
	net.Listener
	closed  chan struct{}
	closing func() // closes closed, once
	goOn    chan struct{}
}

func (l slowToClose) Accept() (net.Conn, error) {
	<-l.closed
	<-l.goOn
	return nil, net.ErrClosed
}

func (l slowToClose) Close() error {
	l.closing()
	return l.Listener.Close()
}

// A reload that moves Orla elsewhere in the moment that it stops does not keep it
// from that.
func TestH4AMoveDuringTheStop(t *testing.T) {
	w := newWeb(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	slow := slowToClose{l, closed, sync.OnceFunc(func() { close(closed) }), make(chan struct{})}
	w.accept("127.0.0.1:1", []net.Listener{slow})
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.shutdown(context.Background())
	}()
	<-closed
	if err := w.listen(t.Context(), "127.0.0.1:0"); err == nil {
		t.Error("it listens elsewhere")
	}
	close(slow.goOn)
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it does not stop")
	}
}
