package running

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

// SPEC J1: a socket of another user is named once.
func TestJ1ASocketOfAnotherUserIsNamedOnce(t *testing.T) {
	const path = "/run/orla/x.sock"
	refused := &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"}, Err: os.NewSyscallError("connect", syscall.EACCES)}
	if got := Explain(fmt.Errorf("%s: %w", path, refused)).Error(); got != path+": permission denied" {
		t.Error(got)
	}
}
