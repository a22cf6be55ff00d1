package listen

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// twoPrograms is a server with one connection, and one that follows it.
type twoPrograms struct {
	t             *testing.T
	first, second *Server
	goOn          chan struct{} // closed when the first one goes on where it was stopped
	conn          net.Conn
	answers       *bufio.Reader
	body          io.ReadCloser // of the last answer
}

func newTwoPrograms(t *testing.T) *twoPrograms {
	s := &twoPrograms{t: t, goOn: make(chan struct{})}
	answers := func(program string, before chan struct{}) *Server {
		w := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			HeadersRead(r.Context(), r.URL.Path == "/stream")
			if r.URL.Path != "/stream" {
				w.Header().Set("Content-Length", "5")
			}
			if r.Method != http.MethodGet { // a byte is missing
				program = "wrong"
			}
			_, _ = io.WriteString(w, program)
			_ = http.NewResponseController(w).Flush()
			if r.URL.Path != "/" {
				<-before
			}
		}), slog.New(slog.DiscardHandler))
		t.Cleanup(w.Cut)
		return w
	}
	s.first, s.second = answers("older", s.goOn), answers("newer", nil)
	return s
}

// begin has a client connect to the first program.
func (s *twoPrograms) begin() {
	t := s.t
	t.Helper()
	if err := s.first.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.conn = connector(t, s.first)()
	s.answers = bufio.NewReader(s.conn)
}

func (s *twoPrograms) send(path string) {
	s.t.Helper()
	if _, err := io.WriteString(s.conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		s.t.Fatal(err)
	}
}

// hear reads an answer.
func (s *twoPrograms) hear(want string) {
	s.t.Helper()
	_ = s.conn.SetReadDeadline(time.Now().Add(time.Minute))
	res, err := http.ReadResponse(s.answers, nil) //nolint:bodyclose // it may be a stream; the connection is closed at the end
	if err != nil {
		s.t.Fatalf("no answer of the %s program: %v", want, err)
	}
	s.body = res.Body
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.body, got); err != nil || string(got) != want {
		s.t.Fatalf("the answer is %q, %v; want %q", got, err, want)
	}
}

// hold keeps the first program from beginning requests.
func (s *twoPrograms) hold() {
	s.t.Helper()
	if err := s.first.Pause(); err != nil {
		s.t.Fatal(err)
	}
	s.first.Hold()
}

// peeked waits until the first program has read a byte of a request while it answers another one.
func (s *twoPrograms) peeked() {
	s.t.Helper()
	testkit.Eventually(s.t, "a byte was read", func() bool {
		c := s.first.conns.all()[0]
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.peeked
	})
}

// handOver has the second program take what the first one gives.
func (s *twoPrograms) handOver() {
	s.t.Helper()
	if err := s.second.Take(s.first.End(s.t.Context()), nil); err != nil {
		s.t.Fatal(err)
	}
}

// SPEC Q1: a request that is sent as soon as the answer before has come is answered by the next program, however long
// the first one gets no processor, and wherever it is stopped.
func TestQ1ARequestRightAfterAnAnswerIsNotLost(t *testing.T) {
	for name, path := range map[string]string{"an answer": "/late", "a stream": "/stream"} {
		t.Run("before the handler of "+name+" returns", func(t *testing.T) {
			s := newTwoPrograms(t)
			s.begin()
			s.send(path)
			s.hear("older")
			s.send("/")
			s.peeked()
			s.hold()
			close(s.goOn)
			if more, err := io.ReadAll(s.body); err != nil || len(more) > 0 {
				t.Fatalf("the answer goes on with %q, %v", more, err)
			}
			s.handOver()
			s.hear("newer")
			s.send("/")
			s.hear("newer")
		})
	}
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name+" the end of the answer is noted", func(t *testing.T) {
			s := newTwoPrograms(t)
			reached := make(chan struct{})
			s.first.server.ConnState = func(c net.Conn, state http.ConnState) {
				if !before {
					followed(c, state)
				}
				if state == http.StateIdle {
					close(reached)
					<-s.goOn
				}
				if before {
					followed(c, state)
				}
			}
			s.begin()
			s.send("/")
			s.hear("older")
			<-reached
			s.hold()
			s.send("/")
			for range 100 {
				if asks, _ := s.first.Looks(); asks != 1 {
					t.Fatalf("%d connections are waited for; want 1", asks)
				}
			}
			if !before {
				s.first.Cut() // as if patience had ended
			}
			close(s.goOn)
			s.handOver()
			s.hear("newer")
		})
	}
}

// SPEC Q1: a connection that was given may wait for its next request as long as it might have before: a client does not
// expect that it is closed sooner. One on which nothing was ever asked may not, and the headers of a request have their
// limit of time as always.
func TestQ1ConnectionsThatWereGivenMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("the method is %s", r.Method)
			}
		}), slog.New(slog.DiscardHandler))
		before := &accepted{}
		give := func(g gift) net.Conn {
			near, far := net.Pipe()
			before.conns = append(before.conns, &from{Conn: far, gift: g})
			return near
		}
		served, halfway, ahead, fresh := give(gift{served: true}), give(gift{served: true}), give(gift{served: true, ahead: []byte("G")}), give(gift{})
		w.serve(before)
		closed := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return errors.Is(err, io.EOF)
		}
		hear := func(c net.Conn) {
			t.Helper()
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		_, _ = io.WriteString(ahead, "ET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		hear(ahead)
		time.Sleep(headerTimeout + time.Second)
		if !closed(fresh) {
			t.Error("a connection on which nothing was ever asked stays open")
		}
		_, _ = io.WriteString(halfway, "GET / HTTP/1.1\r\n")
		time.Sleep(idleTimeout - headerTimeout - 2*time.Second)
		if !closed(halfway) {
			t.Error("a request whose headers do not end keeps its connection open")
		}
		_ = served.SetReadDeadline(time.Time{})
		if _, err := io.WriteString(served, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatalf("a connection on which something was asked before: %v", err)
		}
		hear(served)
		w.Cut()
	})
}

// SPEC Q1, S2: a request that has begun to arrive is waited for as long as the process has had no processor, and not for as
// long as its client likes.
func TestQ1PatienceIsNotMeasuredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = near.Close() }()
		c := &conn{Conn: far}
		c.phase = arriving
		c.hold()
		time.Sleep(time.Hour) // it was stopped
		for i := range patience[arriving] + 1 {
			if asks, _ := c.look(); asks != (i < patience[arriving]) {
				t.Fatalf("look %d says %t", i, asks)
			}
		}
	})
}
