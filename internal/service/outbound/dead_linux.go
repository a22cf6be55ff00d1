package outbound

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unheard is how long the other side may leave unacknowledged what was sent. The
// kernel would try for a quarter of an hour, and over HTTP/2 all calls to a
// service go the way of the first: pings, which find this out elsewhere, are
// no way out, since servers of gRPC take more than one in five minutes for an
// attack.
const unheard = 20 * time.Second

// giveUpDead makes a connection end when the other side is not there any more.
func giveUpDead(raw syscall.RawConn) error {
	var err error
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unheard.Milliseconds()))
	})
	if control != nil {
		return control
	}
	return err
}
