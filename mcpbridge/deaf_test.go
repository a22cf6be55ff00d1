package mcpbridge_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/mcpbridge"
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
	f := w.front(t, mcpbridge.HTTPSettings{}, func(h *mcpbridge.HTTP) {
		h.SetLimits(time.Minute, 50*time.Millisecond, time.Millisecond)
	})
	var open atomic.Int64
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		f.ServeHTTP(rw, r)
	})}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(narrow{l}) })
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
	})

	listen, listening := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
	stream := func(session string) string {
		return "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + session + "\r\n\r\n"
	}
	deaf := []string{
		stream(f.initialize(t)),
		"GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
		fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s: %s\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
			listening[0], listening[1], listening[2], listening[3], len(listen), listen),
	}
	begin := func(request string) net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			err = conn.(*net.TCPConn).SetReadBuffer(1)
		}
		if err == nil {
			_, err = conn.Write([]byte(request))
		}
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	reading := bufio.NewScanner(begin(stream(f.initialize(t))))
	heard := make(chan struct{}, 1)
	served.Go(func() {
		for reading.Scan() {
			if strings.Contains(reading.Text(), "list_changed") {
				select {
				case heard <- struct{}{}:
				default: // it was heard already
				}
			}
		}
	})
	for _, request := range deaf {
		begin(request)
	}
	eventually(t, "all streams are open", func() bool { return open.Load() == int64(len(deaf))+1 })
	eventually(t, "those that do not read are left", func() bool { return open.Load() == 1 })
	w.set(tool("echo"), tool("new"))
	within(t, heard, "news for the one that reads")
}
