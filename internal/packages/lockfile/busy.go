package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// WorkDir is the hidden folder in a folder of tools where packages are made, and GuardFile is the file in it that
// whoever installs or removes packages has locked.
const (
	WorkDir   = ".orla"
	GuardFile = "lock"
)

// IsBusy reports whether somebody installs into a folder of tools, or removes from it.
func IsBusy(toolsDir string) bool {
	f, err := os.OpenFile(filepath.Join(toolsDir, WorkDir, GuardFile), os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not wait
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // which unlocks it
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
