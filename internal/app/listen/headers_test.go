package listen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// serving is a server on loopback, with connections to it.
type serving struct {
	*Server
	t *testing.T
}

func serveTest(t *testing.T, handler http.HandlerFunc) *serving {
	t.Helper()
	w := New(handler, slog.New(slog.DiscardHandler))
	if err := w.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Shutdown(context.Background()) })
	return &serving{w, t}
}

// client is a connection, and how it is read.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (s *serving) connect(from string) *client {
	s.t.Helper()
	d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", s.current.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &client{c, s.t, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Error(err)
	}
}

// status reads a response, and returns its status; 0 for none.
func (c *client) status() int {
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.ReadAll(res.Body); err != nil {
		return 0
	}
	return res.StatusCode
}

// lines are so many lines of headers that are as short as may be.
func lines(n int, end string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "%c%c%c:%s", 'a'+i%26, 'a'+i/26%26, 'a'+i/26/26, end)
	}
	return all.String()
}

// SPEC S2: net/http makes an entry of each line of headers, which takes thirty times what the
// shortest line does. Their number is bounded, however they come.
func TestS2LinesOfHeadersAreBounded(t *testing.T) {
	const (
		get  = "GET / HTTP/1.1\r\nHost: localhost\r\n"
		post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
	)
	const chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
	pretty := strings.Repeat("\n", 3000)
	w := New(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), slog.New(slog.DiscardHandler))
	defer w.Shutdown(context.Background())
	pipes := &pipeListener{conns: make(chan net.Conn)}
	w.Accept("pipes", []net.Listener{pipes})
	for _, c := range []struct {
		name string
		send []string // each when the one before is read
		want []int
	}{
		{"few", []string{get + "\r\n"}, []int{200}},
		{"as many as may be", []string{get + lines(99, "\r\n") + "\r\n"}, []int{200}},
		{"one too many", []string{get + lines(100, "\r\n") + "\r\n"}, []int{431}},
		{"too many that do not end", []string{get + lines(1000, "\r\n")}, []int{431}},
		{"too many, without carriage returns", []string{strings.ReplaceAll(get, "\r", "") + lines(101, "\n")}, []int{431}},
		{"too many, one by one", append([]string{get}, strings.SplitAfter(lines(101, "\r\n"), ":")...), []int{431}},
		{"too many bytes", []string{get + "X: " + strings.Repeat("x", 32<<10)}, []int{431}},
		{"too many after empty lines", []string{post + "0\r\n\r\n", "\r\n\r\n" + get + lines(1000, "\r\n")}, []int{200, 431}},
		{"too many in the next request", []string{get + "\r\n", get + lines(101, "\r\n")}, []int{200, 431}},
		{"too many lines that are folded", []string{get + "X: y\r\n" + strings.Repeat(" z\r\n", 101)}, []int{431}},

		{"a body with many lines", []string{post + "3000\r\n\r\n" + pretty, get + "\r\n"}, []int{200, 200}},
		{"such a body in parts", []string{post + "3000\r\n", "\r\n" + pretty[:1000], pretty[1000:], get + "\r\n"}, []int{200, 200}},
		{"a body of unknown length with many lines", []string{chunked + "bb8\r\n" + pretty + "\r\n0\r\n\r\n", get + "\r\n"}, []int{200, 200}},
		{"such a body in parts", []string{chunked + "bb8\r\n", pretty, "\r\n0\r", "\n\r\n", get + "\r\n"}, []int{200, 200}},
		{"requests that come together", []string{strings.Repeat(get+"\r\n", 20)}, slicesOf(200, 20)},
		{"a request that comes in the body's packet", []string{post + "3\r\n\r\nabc" + get + "\r\n"}, []int{200, 200}},

		{"too many ahead", []string{get + "\r\n" + get + lines(500, "\r\n"), "more:\r\n"}, []int{200, 431}},
		{"too many ahead that end", []string{get + "\r\n" + get + lines(500, "\r\n") + "\r\n"}, []int{200, 431}},
		{"too many behind a body", []string{post + "3\r\n\r\nabc" + get + lines(500, "\r\n"), "more:\r\n"}, []int{200, 431}},
		{"too many behind the rest of a body", []string{post + "3\r\n\r\n", "abc" + get + lines(500, "\r\n"), "more:\r\n"}, []int{200, 431}},
		{"too many behind a body of unknown length", []string{chunked + "3\r\nabc\r\n0\r\n\r\n" + get + lines(500, "\r\n"), "more:\r\n"}, []int{200, 431}},
		{"too many behind the rest of one", []string{chunked + "3\r\nabc\r\n", "0\r\n\r\n" + get + lines(500, "\r\n"), "more:\r\n"}, []int{200, 431}},
		{"a body ahead", []string{get + "\r\n" + post + "3000\r\n\r\n" + pretty[:10], pretty[10:]}, []int{200, 200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			own, theirs := net.Pipe() // a write is read before the next one begins
			defer func() { _ = own.Close() }()
			_ = own.SetDeadline(time.Now().Add(time.Minute))
			pipes.conns <- theirs
			go func() {
				for _, part := range c.send {
					if _, err := io.WriteString(own, part); err != nil {
						return // it is refused
					}
				}
			}()
			one := &client{own, t, bufio.NewReader(own)}
			for i, want := range c.want {
				if got := one.status(); got != want {
					t.Fatalf("request %d gets %d, want %d", i, got, want)
				}
			}
		})
	}
}

// pipeListener accepts the connections that it is given.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func slicesOf(value, n int) (all []int) {
	for range n {
		all = append(all, value)
	}
	return all
}

// SPEC S2, N2: what the headers of all requests take together is bounded, from their first
// bytes on. An address or a caller leaves room to others, and those with small headers need
// none.
func TestS2HeadersOfAllRequestsAreBounded(t *testing.T) {
	const room, each = 256 << 10, 12 << 10
	s := serveTest(t, func(_ http.ResponseWriter, r *http.Request) {
		if caller := r.Header.Get("Authorization"); caller != "" {
			Admitted(r.Context(), caller)
		}
	})
	s.conns.pending.headers, s.conns.callers.headers = turns.NewShares(room), turns.NewShares(room)
	taken := func() int64 { return s.conns.pending.headers.Taken() + s.conns.callers.headers.Taken() }
	head := func(auth string, size int) string {
		return "GET / HTTP/1.1\r\nHost: localhost\r\n" + auth + "X: " + strings.Repeat("x", size) + "\r\n"
	}
	flood := func(c *client, auth string) (refused bool) {
		before := taken()
		c.send(head(auth, each))
		seen := make(chan int, 1)
		go func() { seen <- c.status() }()
		for taken() < before+each {
			select {
			case status := <-seen:
				if status != http.StatusServiceUnavailable {
					t.Errorf("it is refused with %d", status)
				}
				return true
			case <-time.After(time.Millisecond):
			}
		}
		return false
	}
	for _, auth := range []string{"", "Authorization: ann\r\n"} {
		held := 0
		var open []*client
		for refused := false; !refused && held < room/each; {
			c := s.connect("127.0.0.1")
			if auth != "" {
				c.send(head(auth, 1) + "\r\n")
				if got := c.status(); got != http.StatusOK {
					t.Fatalf("got %d", got)
				}
			}
			if refused = flood(c, auth); !refused {
				held++
				open = append(open, c)
			}
		}
		if held < room/each/4 || held > room/each/2 {
			t.Errorf("%q holds the headers of %d requests", auth, held)
		}
		for _, size := range []int{1, each} {
			c := s.connect("127.0.0.2")
			c.send(head("Authorization: bob\r\n", size) + "\r\n")
			if got := c.status(); got != http.StatusOK {
				t.Errorf("another with headers of %d bytes gets %d", size, got)
			}
		}
		c := s.connect("127.0.0.1")
		c.send(head(auth, 1) + "\r\n")
		if got := c.status(); got != http.StatusOK {
			t.Errorf("small headers of the same one get %d", got)
		}
		for i, c := range open {
			if i%2 == 0 {
				_ = c.Close()
				continue
			}
			c.send("\r\n") // and then it is idle
		}
		testkit.Eventually(t, "nothing is held", func() bool { return taken() == 0 })
	}
}

// Headers that are read take no room while their request is answered, and nothing is kept of
// trailers, long paths and long names.
func TestS2HeadersAreNotKeptForAsLongAsARequest(t *testing.T) {
	answering, end := make(chan *http.Request), make(chan struct{})
	s := serveTest(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		copied := r.WithContext(r.Context())
		HeadersRead(r.Context(), false)
		answering <- r
		<-end
		if len(copied.Header) > 0 {
			t.Error("a copy of the request has its headers")
		}
	})
	c := s.connect("127.0.0.1")
	c.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: one, two\r\nX: " + strings.Repeat("x", 10<<10) + "\r\n\r\n" +
		"3\r\nabc\r\n0\r\n" + lines(50, "\r\n") + "\r\n")
	r := <-answering
	if len(r.Header) > 0 || len(r.Trailer) > 0 {
		t.Errorf("%d headers and %d trailers are kept", len(r.Header), len(r.Trailer))
	}
	if n := s.conns.pending.headers.Taken(); n > 0 {
		t.Errorf("%d bytes of headers are held", n)
	}
	close(end)
	if got := c.status(); got != http.StatusOK {
		t.Errorf("it gets %d", got)
	}
	for path, want := range map[string]int{strings.Repeat("x", 4<<10): http.StatusRequestURITooLong, " HTTP/1.1\r\nHost: " + strings.Repeat("x", 600): http.StatusBadRequest} {
		c := s.connect("127.0.0.1")
		head := "GET /" + path
		if !strings.Contains(head, "Host") {
			head += " HTTP/1.1\r\nHost: localhost"
		}
		c.send(head + "\r\n\r\n")
		if got := c.status(); got != want {
			t.Errorf("%.30s gets %d, want %d", path, got, want)
		}
	}
}
