// Package wholefile writes files that are there as a whole or not at all,
// whoever reads them meanwhile and whenever Orla is killed.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Prefix begins the name of a file that is being written, or that was when its
// process was killed.
const Prefix = ".new-"

// abandoned is the age at which no process is writing such a file any more.
const abandoned = time.Hour

// Write puts a file with mode 0600 at path, in the place of what is there. Folders
// that are missing are made with mode 0700. The file is not synced: after a crash
// of the machine it may be empty. Write may be called from any goroutine, also for
// one path.
func Write(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, Prefix+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says more
	}
	return err
}

// Sweep removes from dir what processes that were killed had begun to write. A
// dir that cannot be read has none.
func Sweep(dir string) {
	names, _ := fs.Glob(os.DirFS(dir), Prefix+"*") // the pattern is a good one
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && Abandoned(info) {
			_ = os.Remove(path) // another may have
		}
	}
}

// Abandoned reports whether a file is one whose writer was killed: it bears Prefix,
// and has not been written to for an hour.
func Abandoned(info fs.FileInfo) bool {
	return strings.HasPrefix(info.Name(), Prefix) && info.Mode().IsRegular() && time.Since(info.ModTime()) > abandoned
}
