package discover

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// identify returns the identity of a file without links at path.
func identify(_ string, info fs.FileInfo) (id identity, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, false
	}
	return identity{
		dev: uint64(stat.Dev), ino: stat.Ino, size: stat.Size, //nolint:unconvert // its type differs between machines
		mtime: stat.Mtim.Nano(), ctime: stat.Ctim.Nano(),
	}, true
}

// lookAt returns the identity of what is at path, which may be a link.
func lookAt(path string) (id identity, ok bool) {
	var stat unix.Stat_t
	if unix.Lstat(path, &stat) != nil {
		return id, false
	}
	return identity{
		dev: uint64(stat.Dev), ino: stat.Ino, size: stat.Size, //nolint:unconvert // its type differs between machines
		mtime: stat.Mtim.Nano(), ctime: stat.Ctim.Nano(),
	}, true
}
