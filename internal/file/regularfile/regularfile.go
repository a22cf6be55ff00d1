// Package regularfile opens regular files and nothing else: a tools folder may contain devices,
// FIFOs and links that lead elsewhere. It also has the error messages for other entries of a folder.
package regularfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
	case isKernelMade(f):
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
	f, info, err := Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data := make([]byte, min(info.Size(), most))
	n, err := f.ReadAt(data, 0)
	if err != nil && n < len(data) {
		return nil, ReadError(err)
	}
	return data, nil
}

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
