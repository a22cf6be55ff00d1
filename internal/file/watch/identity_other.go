//go:build !linux

package watch

import (
	"os"
	"syscall"
)

// identify returns the identity of the folder at path.
func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	id := identity{ino: inodeOf(info)} // APFS does not reuse inode numbers
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		id.dev = uint64(s.Dev)
	}
	return id, nil
}
