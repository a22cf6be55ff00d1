package outbound

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unheard is how long sent data may remain unacknowledged. The kernel would try for a quarter of an
// hour, and with HTTP/2 all calls to a service share one connection. Frequent pings would also
// notice a dead peer, but gRPC servers close a connection with more than one ping in five minutes.
const unheard = 20 * time.Second

// giveUpDead makes a connection fail when its peer is gone.
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
