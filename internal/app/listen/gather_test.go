package listen

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countedListener counts what is written to its connections.
type countedListener struct {
	net.Listener
	writes atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, &l.writes}, err
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// serveCounted serves a handler. ask makes a request on one connection, and returns the headers and the body of the answer.
func serveCounted(t *testing.T, handler http.HandlerFunc) (writes *atomic.Int64, ask func(method string) (http.Header, io.Reader)) {
	t.Helper()
	w := New(handler, slog.New(slog.DiscardHandler))
	t.Cleanup(w.Cut)
	var listening net.ListenConfig
	l, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedListener{Listener: l}
	w.Accept("", []net.Listener{counted})
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	return &counted.writes, func(method string) (http.Header, io.Reader) {
		t.Helper()
		if _, err := io.WriteString(c, method+" / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Body.Close() })
		return a.Header, a.Body
	}
}

// L1: an answer of some KiB is written in one piece, and arrives as it was made, whatever its size.
func TestL1AnAnswerIsWrittenInOnePiece(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcde\n"), 8<<10)
	var size int
	writes, ask := serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
		HeadersRead(r.Context(), false)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		parts := [][]byte{text[:size]}
		if size > 16<<10 { // as the front writes it
			const around = 100 // what stands around the result
			parts = [][]byte{text[:around], text[around : size-around], text[size-around : size]}
		}
		for _, part := range parts {
			_, _ = w.Write(part)
		}
	})
	sizes := []int{300, 16 << 10, 30 << 10, 32 << 10, 64 << 10, len(text)}
	for near := range 400 { // with and without headers, about as much as net/http's buffer holds
		sizes = append(sizes, 3800+near, 2*3800+near)
	}
	for _, size = range sizes {
		before := writes.Load()
		_, body := ask(http.MethodPost)
		got, err := io.ReadAll(body)
		if err != nil || !bytes.Equal(got, text[:size]) {
			t.Fatalf("%d bytes arrive as %d: %v", size, len(got), err)
		}
		if n := writes.Load() - before; n != 1 && size <= 30<<10 {
			t.Errorf("%d bytes are written in %d pieces", size, n)
		}
	}
}

// L1: what is not a whole answer goes out when it is flushed: a stream, and what is written before the headers are read.
func TestL1AStreamIsNotGathered(t *testing.T) {
	for name, begin := range map[string]func(*http.Request){
		"stream": func(r *http.Request) { HeadersRead(r.Context(), true) },
		"early":  func(*http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			more := make(chan struct{})
			const size, first = 16 << 10, 6 << 10
			_, ask := serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
				begin(r)
				w.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = w.Write(make([]byte, first))
				_ = http.NewResponseController(w).Flush()
				<-more
				_, _ = w.Write(make([]byte, size-first))
			})
			_, body := ask(http.MethodPost) // comes before more
			if _, err := io.ReadFull(body, make([]byte, first)); err != nil {
				t.Fatal(err)
			}
			close(more)
			if rest, err := io.ReadAll(body); err != nil || len(rest) != size-first {
				t.Errorf("the rest has %d bytes: %v", len(rest), err)
			}
		})
	}
}

// L1: the answer to a HEAD is not waited for, although its headers have a length and fill net/http's buffer.
func TestL1TheAnswerToAHEADIsNotGathered(t *testing.T) {
	var pad int
	_, ask := serveCounted(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "8000")
		w.Header().Set("X-Pad", strings.Repeat("x", pad))
	})
	for pad = fullBuffer - 200; pad < fullBuffer; pad++ { // with one of them, all headers have fullBuffer bytes
		if got, _ := ask(http.MethodHead); got.Get("Content-Length") != "8000" || len(got.Get("X-Pad")) != pad {
			t.Fatalf("with %d bytes in a header: %v", pad, got)
		}
	}
}
