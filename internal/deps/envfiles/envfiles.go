// Package envfiles changes the files of an environment of packages that installers have made, before it is used, and bounds
// how large it becomes.
package envfiles

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// mostText bounds a file whose paths are changed.
const mostText = 1 << 20

// Relocate replaces the path of the folder that an environment is built in, in the scripts that the installers have made
// there, by the path that it will have.
func Relocate(part, at string) error {
	entries, err := os.ReadDir(filepath.Join(part, "bin"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() > mostText {
			continue
		}
		file := filepath.Join(part, "bin", entry.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 || !bytes.Contains(text, []byte(part)) {
			continue
		}
		// uv may have linked the file to its cache, so it is replaced and not changed.
		if err := os.Remove(file); err != nil {
			return err
		}
		if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(part), []byte(at)), info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// OpenToRead lets the user of sandboxes read an environment. On this machine the folder above it, which is the user's
// own, keeps others out.
func OpenToRead(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o044
		if mode&0o100 != 0 {
			mode |= 0o011
		}
		if mode == info.Mode().Perm() {
			return nil
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().IsRegular() && sys.Nlink > 1 {
			return replaceBy(path, mode) // the other names are of a cache, or of anything
		}
		return os.Chmod(path, mode)
	})
}

// replaceBy replaces a file by a copy with another mode.
func replaceBy(path string, mode fs.FileMode) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	to, err := os.CreateTemp(filepath.Dir(path), ".copy-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(mode), to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		_ = os.Remove(to.Name()) // the whole folder is removed otherwise
	}
	return err
}
