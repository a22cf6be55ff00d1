// Package regularfile opens regular files and nothing else: a tools folder may contain devices,
// FIFOs and links that lead elsewhere. It also has the error messages for other entries of a folder.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open opens a regular file for reading. It does not open anything else, since opening some devices
// has effects. It never blocks: not for the writer of a FIFO that has just replaced the file, nor
// for a process with a lease on it. Reads from the file do not block either.
func Open(file string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, ReadError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, notRegular(info)
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, ReadError(err)
	}
	info, err = f.Stat()
	switch {
	case err != nil:
		err = ReadError(err)
	case !info.Mode().IsRegular():
		err = notRegular(info)
	case openIsKernelMade(f):
		err = errKernelMade
	default:
		return f, info, nil
	}
	_ = f.Close() // nothing was read
	return nil, nil, err
}

var errKernelMade = errors.New("is not a regular file but one that the kernel makes, such as those of /proc")

func notRegular(info fs.FileInfo) error {
	return fmt.Errorf("is not a regular file but %s", KindOf(info.Mode()))
}

// Read returns the first most bytes of a regular file.
func Read(file string, most int64) ([]byte, error) {
	data, size, err := Head(file, most)
	if err == nil && int64(len(data)) < min(size, most) {
		err = ReadError(io.EOF) // it has become shorter meanwhile
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Head returns the first most bytes of a regular file, and the size that it had. It is for many small files: what it
// opens is not given to the runtime's poller, which has no use for it.
func Head(file string, most int64) (head []byte, size int64, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, 0, ReadError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, 0, notRegular(info)
	}
	fd, err := again(func() (int, error) { return unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, 0, ReadError(err)
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	var now unix.Stat_t
	if _, err := again(func() (int, error) { return 0, unix.Fstat(fd, &now) }); err != nil {
		return nil, 0, ReadError(err)
	}
	if now.Mode&unix.S_IFMT != unix.S_IFREG { // something has replaced it
		return nil, 0, errReplaced
	}
	if isKernelMade(fd) {
		return nil, 0, errKernelMade
	}
	head = make([]byte, max(0, min(now.Size, most)))
	n := 0
	for n < len(head) {
		more, err := again(func() (int, error) { return unix.Pread(fd, head[n:], int64(n)) })
		if err != nil {
			return nil, 0, ReadError(err)
		}
		if more == 0 {
			break
		}
		n += more
	}
	return head[:n], now.Size, nil
}

// again calls f until no signal interrupts it.
func again(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

var errReplaced = errors.New("is not a regular file any more")

// Within reports whether file is dir or below it. Both are absolute paths without links.
func Within(dir, file string) bool {
	rel, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(rel)
}

// KindOf names the kind of an entry that is not a regular file.
func KindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "a folder"
	case fs.ModeNamedPipe:
		return "a FIFO"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeSymlink:
		return "a link"
	default:
		return "a device"
	}
}

// ReadError returns an *UnreadableError for an error of package os. It removes the path, which the
// caller's message has.
func ReadError(err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return &UnreadableError{err}
}

// An UnreadableError says that an entry cannot be read; it says nothing about its content.
type UnreadableError struct{ cause error }

// Error returns the reason.
func (e *UnreadableError) Error() string { return "cannot be read: " + e.cause.Error() }

// Unwrap returns the error of package os.
func (e *UnreadableError) Unwrap() error { return e.cause }

// IsProgram reports whether a file, or the target of a link, is executable.
func IsProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Resolve returns the path of a file without links, or "" if it does not exist. A relative path is
// relative to dir.
func Resolve(dir, file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return ""
	}
	return path
}

// ResolveBelow is filepath.EvalSymlinks of a path relative to dir, which is absolute and without links.
func ResolveBelow(dir, rel string) (string, error) {
	path := filepath.Join(dir, rel)
	if !filepath.IsLocal(rel) {
		return filepath.EvalSymlinks(path)
	}
	for end := len(strings.TrimSuffix(dir, string(filepath.Separator))); end < len(path); {
		next := strings.IndexByte(path[end+1:], filepath.Separator)
		if next < 0 {
			end = len(path)
		} else {
			end += 1 + next
		}
		info, err := os.Lstat(path[:end])
		if err != nil || info.Mode().Type() == fs.ModeSymlink || end < len(path) && !info.IsDir() {
			return filepath.EvalSymlinks(path)
		}
	}
	return path, nil
}

// Real returns an absolute path, with links resolved as far as it exists.
func Real(path string) string {
	given := path
	path, err := filepath.Abs(given)
	if err != nil { // there is no working directory
		path = filepath.Clean(given)
	}
	missing := ""
	for {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Join(real, missing)
		}
		up := filepath.Dir(path)
		if up == path {
			return filepath.Join(path, missing)
		}
		missing = filepath.Join(filepath.Base(path), missing)
		path = up
	}
}
