//go:build !linux

package needs

import (
	"net"
	"testing"
)

// Address returns an address of this machine at which nobody listens. Here it is
// one that nobody has for the moment.
func Address(t testing.TB) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close() // nobody has connected
	return listener.Addr().String()
}
