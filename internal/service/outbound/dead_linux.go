package outbound

import (
	"net"
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

// taken returns how many bytes the other end of a connection has taken; 0 if nobody knows.
func taken(conn net.Conn) (n uint64) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // it fails if the connection is closed
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked
		}
	})
	return n
}
