package discover

import (
	"io/fs"
	"syscall"
)

// identify returns the identity of a file without links at path.
func identify(_ string, info fs.FileInfo) (id identity, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, false
	}
	return identityOf(stat), true
}

// lookAt returns the identity of what is at path, which may be a link.
func lookAt(path string) (id identity, ok bool) {
	var stat syscall.Stat_t
	if syscall.Lstat(path, &stat) != nil {
		return id, false
	}
	return identityOf(&stat), true
}

func identityOf(stat *syscall.Stat_t) identity {
	return identity{
		dev: uint64(stat.Dev), ino: stat.Ino, size: stat.Size, //nolint:unconvert // its type differs between machines
		mtime: stat.Mtim.Nano(), ctime: stat.Ctim.Nano(),
	}
}
