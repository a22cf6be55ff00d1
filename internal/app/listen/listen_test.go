package listen

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/logging"
)

// A connection that was accepted before Orla stops is answered, though its
// request comes when no more are accepted (SPEC H4, K1).
func TestH4AConnectionThatWasAcceptedIsAnswered(t *testing.T) {
	w := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") }), slog.New(slog.DiscardHandler))
	w.first = time.Minute
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	connect := connector(t, w)
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
		w.Shutdown(context.Background())
	}()
	w.serving.Wait() // nothing is accepted any more
	ask(fresh)
	<-over
}

// connector returns what connects to the address that w has now.
func connector(t *testing.T, w *Server) (connect func() net.Conn) {
	address := w.current.Addr().String()
	return func() net.Conn {
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// Orla stops though its connections are as many as it may have, and more wait
// (SPEC H4).
func TestH4AFullServerStops(t *testing.T) {
	w := New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	w.conns = newConnections(1)
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
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
		w.Shutdown(context.Background())
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it does not stop")
	}
}

// An address that opens connections does not keep out others: it loses its own
// oldest ones. A connection with a request that was let through stays (SPEC G7, S2).
func TestS2PendingConnectionsLeaveRoomForOthers(t *testing.T) {
	const most = 20
	w := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			Admitted(r.Context(), r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, "an answer")
	}), slog.New(slog.DiscardHandler))
	w.conns = newConnections(most)
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer w.Shutdown(context.Background())
	_, port, _ := net.SplitHostPort(w.current.Addr().String())
	connect := func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	ask := func(c net.Conn, header string) error {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n"); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(res.Body)
		return errors.Join(err, res.Body.Close())
	}
	const token = "Authorization: x\r\n"
	known, other := connect("127.0.0.1"), connect("127.0.0.2")
	if err := ask(known, token); err != nil {
		t.Fatal(err)
	}
	if err := ask(other, ""); err != nil {
		t.Fatal(err)
	}
	for range 3 * most {
		connect("127.0.0.1")
	}
	if err := ask(connect("127.0.0.3"), ""); err != nil {
		t.Errorf("another address is not answered: %v", err)
	}
	if err := ask(other, ""); err != nil {
		t.Errorf("an address with one connection has lost it: %v", err)
	}
	if err := ask(known, token); err != nil {
		t.Errorf("a connection that was known is closed: %v", err)
	}
	w.conns.mu.Lock()
	defer w.conns.mu.Unlock()
	if w.conns.open > most/2+1 || w.conns.pending.size != w.conns.open-1 {
		t.Errorf("%d connections, %d pending", w.conns.open, w.conns.pending.size)
	}
}

// A caller that opens connections does not keep out others, with a token or without:
// it loses its own, and first those on which nothing is asked (SPEC N2).
func TestN2ACallerLeavesConnectionsToOthers(t *testing.T) {
	const most = 20
	stays := make(chan struct{})
	w := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller := r.Header.Get("Authorization"); caller != "" {
			Admitted(r.Context(), caller)
		}
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/stays" {
			<-stays
		}
	}), slog.New(slog.DiscardHandler))
	w.conns = newConnections(most)
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer w.Shutdown(context.Background())
	connect := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(t.Context(), "tcp", w.current.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	begin := func(c net.Conn, path, header string) (*http.Response, error) {
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n"); err != nil {
			return nil, err
		}
		return http.ReadResponse(bufio.NewReader(c), nil)
	}
	ask := func(c net.Conn, header string) error {
		res, err := begin(c, "/", header)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(res.Body)
		return errors.Join(err, res.Body.Close())
	}
	const ann, bob = "Authorization: ann\r\n", "Authorization: bob\r\n"
	anns := connect()
	if err := ask(anns, ann); err != nil {
		t.Fatal(err)
	}
	stream, err := begin(connect(), "/stays", bob)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * most { // bob loses those that he has
		if err := ask(connect(), bob); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(connect(), ""); err != nil {
		t.Errorf("an address without a name is not answered: %v", err)
	}
	if err := ask(connect(), ann); err != nil {
		t.Errorf("another caller is not answered: %v", err)
	}
	if err := ask(anns, ann); err != nil {
		t.Errorf("another caller has lost its connection: %v", err)
	}
	w.conns.mu.Lock()
	open, callers := w.conns.open, w.conns.callers.size
	w.conns.mu.Unlock()
	if open > most || callers > most-most/4 {
		t.Errorf("%d connections, %d of callers; want %d at most, and a quarter for others", open, callers, most)
	}
	close(stays)
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("a connection with a request was closed before those without: %v", err)
	}
	_ = stream.Body.Close()
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
	w := New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	slow := slowToClose{l, closed, sync.OnceFunc(func() { close(closed) }), make(chan struct{})}
	w.Accept("127.0.0.1:1", []net.Listener{slow})
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Shutdown(context.Background())
	}()
	<-closed
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err == nil {
		t.Error("it listens elsewhere")
	}
	close(slow.goOn)
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it does not stop")
	}
}

// SPEC I2: a panic in an HTTP handler is logged with its stack, and what else
// net/http says is one record for debugging.
func TestI2PanicsOfHTTPHandlersAreLogged(t *testing.T) {
	var out bytes.Buffer
	l := logging.New(&out, "")
	w := New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh\nno") }), l.Logger)
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.Get(w.URL()); err == nil {
		_ = resp.Body.Close()
		t.Errorf("got HTTP %d", resp.StatusCode)
	}
	w.Shutdown(t.Context())
	l.Configure("debug", logging.JSON, nil)
	w.server.ErrorLog.Print("http: \x1b[31mTLS\nhandshake")
	lines := l.History().Last(history.Query{})
	if len(lines) != 2 || lines[0].Event != "panic in an HTTP request" || lines[0].Level != slog.LevelError || lines[1].Level != slog.LevelDebug {
		t.Fatalf("the log has %q", &out)
	}
	var line struct{ Panic, Stack string }
	if err := json.Unmarshal(lines[0].JSON, &line); err != nil || !strings.Contains(line.Panic, "oh") || !strings.Contains(line.Stack, "listen_test.go") {
		t.Errorf("%v: %s", err, lines[0].JSON)
	}
}

// SPEC N2: OPTIONS * is answered by the handler, in its turn, as all requests are.
func TestN2TheHandlerSeesOptionsOfTheWholeServer(t *testing.T) {
	w := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), slog.New(slog.DiscardHandler))
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer w.Shutdown(t.Context())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, strings.TrimSuffix(w.URL(), "/mcp"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Opaque = "*"
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusTeapot {
		t.Errorf("it is answered %d", answer.StatusCode)
	}
}

// SPEC A1: an address of another machine is not in use by a program of this one.
func TestA1AnAddressElsewhereIsNotInUse(t *testing.T) {
	for _, c := range []struct {
		local, remote string
		want          bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", true},
		{"::1", "::1", true},
		{"192.0.2.7", "192.0.2.7", true},
		{"192.0.2.7", "198.51.100.1", false},
	} {
		if got := isOwn(&net.TCPAddr{IP: net.ParseIP(c.local)}, &net.TCPAddr{IP: net.ParseIP(c.remote)}); got != c.want {
			t.Errorf("from %s to %s: %t", c.local, c.remote, got)
		}
	}
}
