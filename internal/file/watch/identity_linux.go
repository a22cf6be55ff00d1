package watch

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// identify returns the identity of the folder at path.
func identify(path string) (identity, error) {
	var s unix.Statx_t
	for {
		err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &s)
		switch {
		case err == nil:
			return identity{dev: unix.Mkdev(s.Dev_major, s.Dev_minor), ino: s.Ino, born: s.Btime.Sec*1e9 + int64(s.Btime.Nsec)}, nil
		case !errors.Is(err, syscall.EINTR):
			return identity{}, &fs.PathError{Op: "statx", Path: path, Err: err}
		}
	}
}
