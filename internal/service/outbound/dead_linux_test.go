package outbound

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"

	"golang.org/x/sys/unix"
)

// Over HTTP/2 a connection to a machine that is gone would take all calls with
// it for as long as the kernel sends again.
func TestConnectionsToTheDeadEnd(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	patience := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		raw, err := pacedOf(got.Conn).Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		if err := raw.Control(func(fd uintptr) {
			patience, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		}); err != nil {
			t.Error(err)
		}
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := New(Options{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // nothing of it is wanted
	if patience != 20_000 {
		t.Errorf("what is sent may be unacknowledged for %d ms; want 20 s", patience)
	}
}
