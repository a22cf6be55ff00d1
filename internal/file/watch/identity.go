package watch

import (
	"io/fs"
	"syscall"
)

// identity tells one folder from another, whatever it is called. The number of a folder
// that was removed is soon given to the next one, so it takes the time of its birth too.
type identity struct {
	dev, ino uint64
	born     int64 // in nanoseconds since 1970; 0 where nobody knows it
}

// inodeOf returns the number that a file or folder has in its file system.
func inodeOf(info fs.FileInfo) uint64 {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(s.Ino) //nolint:unconvert // its type differs between systems
}
