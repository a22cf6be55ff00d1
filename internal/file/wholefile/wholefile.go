// Package wholefile writes files atomically: a reader sees the old or the new file, also if Orla is
// killed during the write.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Prefix begins the name of a file while it is being written. Such a file remains if the process is
// killed.
const Prefix = ".new-"

// abandoned is the age after which no process is writing to such a file any more.
const abandoned = time.Hour

// Write replaces the file at path, with mode 0600. It makes missing folders with mode 0700. It does
// not sync the file: after a crash of the machine it may be empty. Write may be called from any
// goroutine, also for the same path.
func Write(path string, data []byte) error { return write(path, data, false) }

// WriteSynced is Write that returns when the file and its name would survive a crash of the machine.
func WriteSynced(path string, data []byte) error { return write(path, data, true) }

func write(path string, data []byte, synced bool) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, Prefix+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if synced && err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err is more useful
		return err
	}
	if !synced {
		return nil
	}
	return SyncNames(dir)
}

// SyncNames makes the names in a folder survive a crash of the machine.
func SyncNames(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Sweep removes from dir the unfinished files of processes that were killed. It ignores errors.
func Sweep(dir string) {
	names, _ := fs.Glob(os.DirFS(dir), Prefix+"*") // the pattern is valid
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Lstat(path); err == nil && Abandoned(info) {
			_ = os.Remove(path) // another process may have removed it
		}
	}
}

// Abandoned reports whether the writer of a file was killed: the name has Prefix, and the last write
// was over an hour ago.
func Abandoned(info fs.FileInfo) bool {
	return strings.HasPrefix(info.Name(), Prefix) && info.Mode().IsRegular() && time.Since(info.ModTime()) > abandoned
}
