package watch

import (
	"io/fs"
	"syscall"
)

// identity identifies a folder, whatever its path. It includes the birth time, since file systems
// reuse the inode number of a removed folder.
type identity struct {
	dev, ino uint64
	born     int64 // in nanoseconds since 1970; 0 if not known
}

// inodeOf returns the inode number of a file or folder.
func inodeOf(info fs.FileInfo) uint64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(s.Ino) //nolint:unconvert // its type differs between systems
}
