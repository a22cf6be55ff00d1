package unixsocket

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// addressable returns a path to the same file that is short enough for a
// socket's address, until done is called.
func addressable(path string) (short string, done func(), err error) {
	if len(path) <= maxAddress {
		return path, func() {}, nil
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}
