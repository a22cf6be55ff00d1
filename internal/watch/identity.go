package watch

import (
	"io/fs"
	"os"
	"syscall"
)

// identity tells one folder from another, whatever it is called.
type identity struct{ dev, ino uint64 }

// identify returns the identity of what path leads to.
func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	return identityOf(info), nil
}

func identityOf(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{dev: uint64(s.Dev), ino: uint64(s.Ino)} //nolint:unconvert // their types differ between systems
}
