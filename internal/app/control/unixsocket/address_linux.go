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
	name, folder := filepath.Base(path), fmt.Sprintf("/proc/self/fd/%d/", dir.Fd())
	if most := len(unix.RawSockaddrUnix{}.Path) - len("\x00") - len(folder); len(name) > most {
		_ = dir.Close()
		return "", nil, fmt.Errorf("the file name has %d bytes, and that of a socket may have 80 at most", len(name))
	}
	return folder + name, func() { _ = dir.Close() }, nil
}
