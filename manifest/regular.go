package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxManifest is one byte more than is ever decoded, so that a longer file is
// seen to be longer without being read.
const maxManifest = 1<<20 + 1

// openRegular opens a regular file to read it. Anything else is not opened, as
// that has effects on some devices. It never waits: neither for the writer of a
// FIFO that has just taken the file's place, nor for a process with a lease on it.
func openRegular(file string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, readError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, notRegular(info)
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, readError(err)
	}
	info, err = f.Stat()
	switch {
	case err != nil:
		err = readError(err)
	case !info.Mode().IsRegular():
		err = notRegular(info)
	default:
		return f, info, nil
	}
	_ = f.Close() // nothing was read
	return nil, nil, err
}

func notRegular(info fs.FileInfo) error {
	return fmt.Errorf("is no regular file but %s", kindOf(info.Mode()))
}

// readRegular reads a small regular file whole.
func readRegular(file string) ([]byte, error) {
	f, info, err := openRegular(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data := make([]byte, min(info.Size(), maxManifest))
	n, err := f.ReadAt(data, 0)
	if err != nil && n < len(data) {
		return nil, readError(err)
	}
	return data, nil
}

// within reports whether file is dir or below it. Both are absolute and
// without links.
func within(dir, file string) bool {
	rel, err := filepath.Rel(dir, file)
	return err == nil && filepath.IsLocal(rel)
}

// kindOf names what is not a regular file.
func kindOf(mode fs.FileMode) string {
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

// readError drops the path, which the Problem has, from an error of os.
func readError(err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return &unreadableError{err}
}

// An unreadableError is trouble with reading an entry, not with what it says.
type unreadableError struct{ cause error }

func (e *unreadableError) Error() string { return "cannot be read: " + e.cause.Error() }

func (e *unreadableError) Unwrap() error { return e.cause }

// isProgram reports whether a file, or what a link leads to, can be executed.
func isProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// resolved is the path without links of a file that may count from dir, or "".
func resolved(dir, file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return ""
	}
	return path
}
