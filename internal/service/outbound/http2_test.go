package outbound_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC N2, S2: a service that lets the window of a call grow past its bound ends that call, and no other waits for it.
func TestS2AWindowThatGrowsPastItsBoundEndsTheCall(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	config := certified.TLS.Clone()
	config.NextProtos = []string{"h2"}
	for name, secure := range map[string]bool{"TLS": true, "no TLS": false} {
		t.Run(name, func(t *testing.T) {
			on, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			scheme := "http"
			if secure {
				on, scheme = tls.NewListener(on, config), "https"
			}
			defer func() { _ = on.Close() }()
			go func() {
				for conn, err := on.Accept(); err == nil; conn, err = on.Accept() {
					go testkit.OverflowWindows(conn)
				}
			}()
			c := newClient(t, outbound.Options{Roots: certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
			client := c.H2C()
			if secure {
				client = c.HTTPClient()
			}
			failed := make(chan error, 1)
			go func() {
				resp, err := client.Post(scheme+"://"+on.Addr().String(), "text/plain", strings.NewReader("x"))
				if err == nil {
					_ = resp.Body.Close()
				}
				failed <- err
			}()
			select {
			case err := <-failed:
				if err == nil || !strings.Contains(err.Error(), "FLOW_CONTROL_ERROR") {
					t.Errorf("the call ended with %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the call does not end")
			}
			c.Close() // it has to come back
		})
	}
}

// SPEC S2: a call ends when its context does, also where the service hardly reads what is sent to it.
func TestS2AServiceThatHardlyReadsKeepsNoCall(t *testing.T) {
	const large = 64 << 20
	for name, answer := range map[string][]byte{
		"before its answer":                 nil,
		"after its answer has begun":        frame(1, 4, 1, ok),
		"after an answer that is not taken": append(frame(1, 4, 1, append(ok, manyFields...)), frame(0, 0, 1, make([]byte, 100))...),
	} {
		t.Run(name, func(t *testing.T) {
			on, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = on.Close() }()
			left, blocked := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(left)
				if conn, err := on.Accept(); err == nil {
					hardlyRead(conn, blocked, answer)
				}
			}()
			c := newClient(t, outbound.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answered := make(chan struct{})
			ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { close(answered) }})
			var taken atomic.Int64 // bytes of the request
			over := make(chan struct{})
			go func() {
				defer close(over)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+on.Addr().String(), counted(strings.NewReader(strings.Repeat("x", large)), &taken))
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := c.H2C().Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if err == nil {
					t.Error("the call ended without an error")
				}
			}()
			awaitBlocked(t, &taken)
			close(blocked)
			if answer != nil {
				<-answered
			}
			cancel()
			for what, ends := range map[string]chan struct{}{"the call": over, "the connection": left} {
				select {
				case <-ends:
				case <-time.After(30 * time.Second):
					t.Fatal(what + " does not end")
				}
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// ok is a header with nothing but the status 200, and manyFields are fields of one, of which an answer may not have so many.
var ok, manyFields = []byte{0x88}, bytes.Repeat([]byte{0, 1, 'a', 1, 'b'}, 300)

// frame returns one of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags}, stream)
	return append(head, payload...)
}

// permitMost begins HTTP/2 on a connection, and permits any amount of data. It returns when the first request has begun.
func permitMost(conn net.Conn) error {
	const preface, most = 24, 1<<30 - 1<<16
	if _, err := io.CopyN(io.Discard, conn, preface); err != nil {
		return err
	}
	begin := append(frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, most)), frame(8, 0, 0, binary.BigEndian.AppendUint32(nil, most))...)
	if _, err := conn.Write(begin); err != nil {
		return err
	}
	for h := make([]byte, 9); h[3] != 1; {
		if _, err := io.ReadFull(conn, h); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(h[0])<<16|int64(h[1])<<8|int64(h[2])); err != nil {
			return err
		}
	}
	return nil
}

// hardlyRead serves HTTP/2 on a connection: it permits any amount of data, and reads a little of it now and then. It answers once the
// client is blocked.
func hardlyRead(conn net.Conn, blocked <-chan struct{}, answer []byte) {
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if permitMost(conn) != nil {
		return
	}
	go func() {
		<-blocked
		_, _ = conn.Write(answer)
	}()
	for few := make([]byte, 1<<10); ; { // for as long as the other side has the connection
		if _, err := conn.Read(few); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// SPEC N2, S2: a call that sends much to a slow service is not lost when others on its connection end.
func TestN2ASlowServiceKeepsTheOtherCalls(t *testing.T) {
	const step, pause = 32 << 10, 100 * time.Millisecond // the kernel has megabytes to send, and takes no more until a third is gone
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64 // what the service has read, in bytes
	enough, over, lost := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer func() {
		close(over)
		_ = on.Close()
		<-lost
	}()
	go func() {
		defer close(lost)
		conn, err := on.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		if permitMost(conn) != nil {
			return
		}
		for some := make([]byte, step); ; {
			n, err := io.ReadFull(conn, some)
			if read.Add(int64(n)); err != nil {
				return
			}
			select {
			case <-enough:
				_, _ = conn.Write(frame(1, 5, 1, ok))
				<-over
				return
			case <-over:
				return
			case <-time.After(pause):
			}
		}
	}()
	c := newClient(t, outbound.Options{})
	post := func(ctx context.Context, body io.Reader) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+on.Addr().String(), body)
		if err != nil {
			return err
		}
		resp, err := c.H2C().Do(req)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	var taken atomic.Int64
	sent := make(chan error, 1)
	go func() { sent <- post(t.Context(), counted(strings.NewReader(strings.Repeat("x", 64<<20)), &taken)) }()
	awaitBlocked(t, &taken)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*pause)
		if err := post(ctx, strings.NewReader("y")); err == nil {
			t.Error("a call that has no answer ends without an error")
		}
		cancel()
	}
	// For longer than a service may take nothing.
	for most, until := read.Load()+30*step, time.Now().Add(30*time.Second); read.Load() < most; {
		select {
		case err := <-sent:
			t.Fatalf("the call is lost: %v", err)
		case <-lost:
			t.Fatal("the connection is lost")
		case <-time.After(pause):
		}
		if time.Now().After(until) {
			t.Fatal("the service gets nothing more")
		}
	}
	close(enough)
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// counted returns a reader that counts what is read from it.
func counted(r io.Reader, n *atomic.Int64) io.Reader {
	return io.TeeReader(r, writerFunc(func(p []byte) (int, error) {
		n.Add(int64(len(p)))
		return len(p), nil
	}))
}

// awaitBlocked waits until a request's body is read no further.
func awaitBlocked(t *testing.T, taken *atomic.Int64) {
	t.Helper()
	for last, same, until := int64(0), 0, time.Now().Add(30*time.Second); same < 10; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the service takes whatever is sent: %d bytes", taken.Load())
		}
		same++
		if now := taken.Load(); now != last || now == 0 {
			last, same = now, 0
		}
	}
}
