package memfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// create returns a new file in memory; nil if the system has none.
func create() *os.File {
	fd, err := unix.MemfdCreate("orla-kept", unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "orla-kept")
}

// punch gives the memory of a part of the file back.
func punch(f *os.File, at, size int64) {
	raw, err := f.SyscallConn()
	if err != nil { // it is closed
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size) // every kernel since 3.5 can
	})
}
