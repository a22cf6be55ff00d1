package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// narrow is a listener whose connections hold next to nothing.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		err = tcp.SetWriteBuffer(1)
	}
	return conn, err
}

// SPEC G7: a listener that does not read is left, whichever kind of stream it has,
// and one beside it that does goes on hearing.
func TestG7AListenerThatDoesNotReadIsLeft(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) {
		setLimits(h, time.Minute, 500*time.Millisecond, 5*time.Millisecond)
	})
	stream := func(session string) string {
		return "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + session + "\r\n\r\n"
	}
	// It may be late on a busy machine, so there is room for what it has not read.
	reader := dial(t, f.addr())
	if _, err := io.WriteString(reader, stream(f.initialize(t))); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	var reading sync.WaitGroup
	t.Cleanup(reading.Wait)
	t.Cleanup(func() { _ = reader.Close() })
	reading.Go(func() {
		for scan := bufio.NewScanner(reader); scan.Scan(); {
			if strings.Contains(scan.Text(), "list_changed") {
				select {
				case heard <- struct{}{}:
				default: // it was heard already
				}
			}
		}
	})

	var began, open atomic.Int64
	l := listen(t)
	serveOn(t, narrow{l}, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		began.Add(1)
		f.ServeHTTP(rw, r)
	}))
	body, headers := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
	deaf := []string{
		stream(f.initialize(t)),
		"GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
		fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s: %s\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
			headers[0], headers[1], headers[2], headers[3], len(body), body),
	}
	for _, request := range deaf {
		conn := dial(t, l.Addr().String())
		err := conn.(*net.TCPConn).SetReadBuffer(1)
		if err == nil {
			_, err = io.WriteString(conn, request)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all streams are open", func() bool { return began.Load() == int64(len(deaf)) })
	eventually(t, "those that do not read are left", func() bool { return open.Load() == 0 })
	w.set(tool("echo"), tool("new"))
	within(t, heard, "news for the one that reads")
}

// SPEC N2, D11: what speaks to a client that does not read is let go when it is to end; what
// it has begun to say arrives whole if the client reads after all.
func TestN2AClientThatDoesNotReadKeepsNobody(t *testing.T) {
	const size = 16 << 20 // more than lies on the way
	began, over := make(chan context.CancelFunc, 1), make(chan struct{}, 1)
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		began <- cancel
		c.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"error","data":"`+strings.Repeat("x", size)+`"}`))
		over <- struct{}{}
		return "heard", nil
	})
	check := func(read io.Reader) {
		t.Helper()
		all := bufio.NewReader(read)
		cancel := within(t, began, "call")
		if _, err := all.Peek(1); err != nil { // now it is being said
			t.Fatal(err)
		}
		cancel()
		within(t, over, "end of what speaks to it")
		for _, want := range []string{`xx"}}`, `"heard"`} {
			for line := ""; !strings.Contains(line, want); {
				var err error
				if line, err = all.ReadString('\n'); err != nil {
					t.Fatalf("%s: %v", want, err)
				}
			}
		}
	}
	t.Run("http", func(t *testing.T) {
		f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) { setLimits(h, time.Minute, 5*time.Minute, time.Minute) })
		conn := dial(t, f.addr())
		if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		body := call(1, "echo")
		if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			t.Fatal(err)
		}
		check(conn)
	})
	t.Run("stdio", func(t *testing.T) {
		p := w.stdio(t, maxLine)
		p.open(t)
		p.write(t, `{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"debug"}}`+"\n")
		p.next(t)
		p.write(t, call(1, "echo")+"\n")
		check(p.outR)
	})
}
