package outbound_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
