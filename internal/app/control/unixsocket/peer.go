package unixsocket

import (
	"fmt"
	"net"
	"os"
)

// Enter returns the user at the other end of conn, or why it may not ask anything.
func Enter(conn net.Conn) (uid int, _ error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("it came over %s", conn.LocalAddr().Network())
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var user uint32
	var failed error
	if err := raw.Control(func(fd uintptr) { user, failed = peerUser(int(fd)) }); err != nil {
		return 0, err
	}
	switch {
	case failed != nil:
		return 0, fmt.Errorf("its user is not known: %w", failed)
	case user != 0 && int(user) != os.Geteuid():
		return 0, fmt.Errorf("it belongs to user %d", user)
	}
	return int(user), nil
}
