// Package unixsocket has the socket of a running Orla: where it is, which process has it, and who may ask there.
//
// The socket's name is derived from the tools folder, and a lock file next to it says which process has it.
// Only Orla's user and root can open the socket.
package unixsocket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/pace"
)

// Owner is the process that has a socket, as its lock file says.
type Owner struct {
	Pid      int       `json:"pid"`
	ToolsDir string    `json:"tools_dir"`
	URL      string    `json:"url"`
	Started  time.Time `json:"started"`
	Dir      string    `json:"dir"` // where it was started
}

// TakenError says that another process has a socket.
type TakenError struct {
	Owner Owner // zero if it has not said yet who it is
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("process %d has it, which serves %s", e.Owner.Pid, e.Owner.URL)
}

// Socket is a socket of this process, with the lock on the file next to it. The kernel releases the lock when
// the process ends, so that a socket whose lock is free is stale. The lock file is removed before the lock
// is released, so that whoever gets a lock has to check that its file still has the name.
type Socket struct {
	Path     string
	Listener net.Listener
	Stop     func() error // stops accepting; closes Listener

	lock *os.File
}

// Occupy takes a socket and listens on it.
func Occupy(ctx context.Context, location Location, owner Owner) (*Socket, error) {
	if err := location.prepare(); err != nil {
		return nil, err
	}
	lock, err := takeLock(ctx, lockOf(location.Socket))
	if err != nil {
		return nil, err
	}
	s := &Socket{Path: location.Socket, Stop: func() error { return nil }, lock: lock}
	s.Sign(owner)
	listener, err := listen(ctx, location.Socket)
	if err != nil {
		s.Release()
		return nil, err
	}
	return newSocket(location.Socket, lock, listener), nil
}

// lockOf returns the path of the lock file of a socket.
func lockOf(socket string) string { return strings.TrimSuffix(socket, socketSuffix) + lockSuffix }

// takeLock takes the lock with a path, or returns a TakenError. A process that has just taken the lock gets
// a moment to write its Owner.
func takeLock(ctx context.Context, path string) (*os.File, error) {
	const looks = 20
	for look := 1; ; look++ {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600) // opening a FIFO does not wait
		if err != nil {
			return nil, err
		}
		err = tryLock(f, path)
		if err == nil {
			return f, nil
		}
		owner := readOwner(f)
		_ = f.Close()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			if owner.Pid != 0 || look >= looks {
				return nil, &TakenError{Owner: owner}
			}
		case !errors.Is(err, errRemoved):
			return nil, err
		}
		if !pace.Sleep(ctx, 10*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// errRemoved says that the file of a lock was removed before the lock was taken.
var errRemoved = errors.New("the lock file was removed")

// tryLock takes the lock on f, which was opened by its path. Whoever had it may have removed the file since then, and another
// process may have made a new one. The error is EWOULDBLOCK if another process has the lock.
func tryLock(f *os.File, path string) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	switch {
	case !same(f, path):
		return errRemoved
	case !isLock(f):
		return fmt.Errorf("%s exists, but is not a lock file of Orla's", path)
	}
	return nil
}

// isLock reports whether a file is a lock of Orla: it is empty, or Sign wrote it. Files of others may have
// such names, and must not be changed.
func isLock(f io.ReaderAt) bool {
	var start [len(`{"pid":`)]byte
	n, err := f.ReadAt(start[:], 0)
	return n == 0 && errors.Is(err, io.EOF) || string(start[:n]) == `{"pid":`
}

// same reports whether path is the name of f.
func same(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, named)
}

func readOwner(r io.ReaderAt) (owner Owner) {
	const enough = 64 << 10
	if err := json.NewDecoder(io.NewSectionReader(r, 0, enough)).Decode(&owner); err != nil {
		return Owner{} // it is being written
	}
	return owner
}

// Sign writes the Owner into the lock file, for messages to people only.
func (s *Socket) Sign(owner Owner) {
	text, err := json.Marshal(owner)
	if err != nil { // its time is out of range
		return
	}
	if n, err := s.lock.WriteAt(append(text, '\n'), 0); err == nil {
		_ = s.lock.Truncate(int64(n))
	}
}

// Intact reports whether the socket and its lock can be found under their names.
func (s *Socket) Intact() bool {
	info, err := os.Lstat(s.Path)
	return err == nil && info.Mode().Type() == fs.ModeSocket && same(s.lock, lockOf(s.Path))
}

// Release gives up the socket. Files that belong to another process by now stay.
func (s *Socket) Release() {
	_ = s.Stop() // nobody is left to tell of an error
	if same(s.lock, lockOf(s.Path)) {
		_ = removeSocket(s.Path) // if it stays, it is stale
		_ = os.Remove(lockOf(s.Path))
	}
	_ = s.lock.Close() // releases the lock
}

// removeSocket removes a socket that a process has left behind, and nothing but a socket.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there, and is not a socket", path)
	}
	return os.Remove(path)
}

// listen listens on a socket that only this user can open. The caller has the lock.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := removeSocket(path); err != nil {
		return nil, err
	}
	name, done, err := addressable(path)
	if err != nil {
		return nil, err
	}
	defer done()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Where the kernel takes it, the socket is never open to others, not
		// even until the chmod below.
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	l, err := config.Listen(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// maxAddress is how long the path of a socket may be where that is shortest.
const maxAddress = 103
