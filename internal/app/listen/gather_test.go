package listen

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
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

// serveCounted serves a handler. post makes a request on one connection, and returns the body of the answer.
func serveCounted(t *testing.T, handler http.HandlerFunc) (writes *atomic.Int64, post func() io.Reader) {
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
	return &counted.writes, func() io.Reader {
		t.Helper()
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		a, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Body.Close() })
		return a.Body
	}
}

// L1: an answer of some KiB is written in one piece, and arrives as it was made, whatever its size.
func TestL1AnAnswerIsWrittenInOnePiece(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcde\n"), 8<<10)
	var size int
	writes, post := serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
		HeadersRead(r.Context(), false)
		w.Header().Set("Content-Length", strconv.Itoa(size))
		const around = 100 // what stands around the result
		for _, part := range [][]byte{text[:around], text[around : size-around], text[size-around : size]} {
			_, _ = w.Write(part)
		}
	})
	sizes := []int{300, 16 << 10, 30 << 10, 32 << 10, 64 << 10, len(text)}
	for near := range 400 { // with and without headers, about as much as net/http's buffer holds
		sizes = append(sizes, 3800+near, 2*3800+near)
	}
	for _, size = range sizes {
		before := writes.Load()
		got, err := io.ReadAll(post())
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
			_, post := serveCounted(t, func(w http.ResponseWriter, r *http.Request) {
				begin(r)
				w.Header().Set("Content-Length", strconv.Itoa(size))
				_, _ = w.Write(make([]byte, first))
				_ = http.NewResponseController(w).Flush()
				<-more
				_, _ = w.Write(make([]byte, size-first))
			})
			body := post() // comes before more
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
