package systemd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// sendBuffer is what journald's own clients ask for; the kernel may give less.
const sendBuffer = 8 << 20

// Journal writes entries to journald's socket. It connects when there is
// something to write, and again after journald was restarted. It is not for
// several goroutines at once.
type Journal struct {
	path string
	fd   int // -1 while it is not connected
}

// NewJournal returns a Journal that writes to the socket at path.
func NewJournal(path string) *Journal { return &Journal{path: path, fd: -1} }

// Ready reports whether the socket takes an entry of a few KiB without making
// its writer wait.
func (j *Journal) Ready() bool {
	if j.fd < 0 && j.connect() != nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(j.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents == unix.POLLOUT
}

// Write writes one entry, which AppendField made. It waits for a journald that
// does not read.
func (j *Journal) Write(entry []byte) (int, error) {
	for again := false; ; again = true {
		if j.fd < 0 {
			if err := j.connect(); err != nil {
				return 0, err
			}
		}
		err := j.send(entry)
		switch {
		case err == nil:
			return len(entry), nil
		case again || errors.Is(err, unix.EMSGSIZE):
			return 0, fmt.Errorf("journal: %w", err)
		}
		j.disconnect() // it may be another journald's by now
	}
}

func (j *Journal) connect() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer) // less will do
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: j.path}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("journal: %s: %w", j.path, err)
	}
	j.fd = fd
	return nil
}

func (j *Journal) disconnect() {
	_ = unix.Close(j.fd) // nothing waits in it
	j.fd = -1
}

// send writes an entry as a datagram, or in a sealed file in memory where it is
// too large for one.
func (j *Journal) send(entry []byte) error {
	err := retry(func() error {
		_, err := unix.Write(j.fd, entry)
		return err
	})
	if !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENOBUFS) {
		return err
	}
	fd, err := unix.MemfdCreate("journal-entry", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "journal-entry")
	defer func() { _ = file.Close() }() // journald has its own descriptor
	if _, err := file.Write(entry); err != nil {
		return err
	}
	const sealed = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, sealed); err != nil {
		return err
	}
	return retry(func() error { return unix.Sendmsg(j.fd, nil, unix.UnixRights(int(file.Fd())), nil, 0) })
}

// retry does what a signal has interrupted again.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
