package wholefile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncTree writes everything in a folder to the disk.
func SyncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
