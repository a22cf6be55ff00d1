package control

import (
	"fmt"
	"net"
	"os"
)

// mayEnter says why whoever is at the other end of conn may not ask anything.
func mayEnter(conn net.Conn) error {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("it came over %s", conn.LocalAddr().Network())
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var uid uint32
	var failed error
	if err := raw.Control(func(fd uintptr) { uid, failed = peerUser(int(fd)) }); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return fmt.Errorf("its user is not known: %w", failed)
	case uid != 0 && int(uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d", uid)
	}
	return nil
}
