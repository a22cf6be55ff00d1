package outbound_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/service/outbound"
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
					go overflow(conn)
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

// overflow serves HTTP/2 on a connection, and twice lets the window of each stream grow by the most that a frame can.
func overflow(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	const (
		preface  = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		head     = 9
		headers  = 1
		settings = 4
		update   = 8
	)
	write := func(kind byte, stream uint32, payload []byte) {
		frame := []byte{0, 0, byte(len(payload)), kind, 0}
		frame = binary.BigEndian.AppendUint32(frame, stream)
		_, _ = conn.Write(append(frame, payload...))
	}
	r := bufio.NewReader(conn)
	if _, err := r.Discard(preface); err != nil {
		return
	}
	write(settings, 0, nil)
	for h := make([]byte, head); ; {
		if _, err := io.ReadFull(r, h); err != nil {
			return
		}
		if _, err := r.Discard(int(h[0])<<16 | int(h[1])<<8 | int(h[2])); err != nil {
			return
		}
		if h[3] == headers {
			for range 2 {
				write(update, binary.BigEndian.Uint32(h[5:]), binary.BigEndian.AppendUint32(nil, 1<<31-1))
			}
		}
	}
}
