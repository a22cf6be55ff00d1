package unixsocket

import "golang.org/x/sys/unix"

// peerUser is the user at the other end of a socket.
func peerUser(fd int) (uint32, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
