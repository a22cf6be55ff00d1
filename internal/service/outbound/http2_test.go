package outbound_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	for name, answers := range map[string]bool{"before its answer": false, "after its answer has begun": true} {
		t.Run(name, func(t *testing.T) {
			on, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = on.Close() }()
			left := make(chan struct{})
			go func() {
				defer close(left)
				if conn, err := on.Accept(); err == nil {
					hardlyRead(conn, answers)
				}
			}()
			c := newClient(t, outbound.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var taken atomic.Int64 // bytes of the request
			over := make(chan struct{})
			go func() {
				defer close(over)
				sent := io.TeeReader(strings.NewReader(strings.Repeat("x", large)), writerFunc(func(p []byte) (int, error) {
					taken.Add(int64(len(p)))
					return len(p), nil
				}))
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+on.Addr().String(), sent)
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
			for last, same, until := int64(0), 0, time.Now().Add(30*time.Second); same < 10; time.Sleep(50 * time.Millisecond) { // until it is blocked
				if time.Now().After(until) {
					t.Fatalf("the service takes whatever is sent: %d bytes", taken.Load())
				}
				same++
				if now := taken.Load(); now != last || now == 0 {
					last, same = now, 0
				}
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

// hardlyRead serves HTTP/2 on a connection: it permits any amount of data, and reads a little of it now and then.
func hardlyRead(conn net.Conn, answers bool) {
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	const preface, most = 24, 1<<30 - 1<<16
	write := func(kind, flags byte, stream uint32, payload []byte) {
		frame := binary.BigEndian.AppendUint32([]byte{0, 0, byte(len(payload)), kind, flags}, stream)
		_, _ = conn.Write(append(frame, payload...))
	}
	if _, err := io.CopyN(io.Discard, conn, preface); err != nil {
		return
	}
	write(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, most))
	write(8, 0, 0, binary.BigEndian.AppendUint32(nil, most))
	for h := make([]byte, 9); h[3] != 1; {
		if _, err := io.ReadFull(conn, h); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(h[0])<<16|int64(h[1])<<8|int64(h[2])); err != nil {
			return
		}
	}
	if answers {
		write(1, 4, 1, []byte{0x88}) // ":status: 200"
	}
	for few := make([]byte, 1<<10); ; { // for as long as the other side has the connection
		if _, err := conn.Read(few); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
