package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folderPrefix begins the name of an Engine's folder; its owner and a random
// word follow.
const folderPrefix = "orla-containers-"

// temp returns the folder of what engines read: profiles, and for as long as a
// pull takes what it is pulled with. Nobody else can look into it. Close removes
// it, and where Orla was killed the Sweep of a later one.
func (e *Engine) temp() (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir != "" && isOurs(e.dir) {
		return e.dir, nil
	}
	var err error                                            // the first, or the old one is swept: who keeps /tmp clean takes what is old
	e.dir, err = os.MkdirTemp("", folderPrefix+e.owner+"-*") // 0700
	return e.dir, err
}

// put makes a file with a content in the folder, all at once: an engine that
// reads it now reads this or what it was.
func (e *Engine) put(name string, content []byte) (path string, err error) {
	dir, err := e.temp()
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, name+"-*") // 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		path = filepath.Join(dir, name)
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says more
	}
	return path, err
}

// sweepFolders removes the folders of Orlas of this user that were killed.
func (e *Engine) sweepFolders() {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return // it is about the pattern
	}
	for _, dir := range left {
		name := strings.TrimPrefix(filepath.Base(dir), folderPrefix)
		o, ok := parseOwner(name[:max(0, strings.LastIndexByte(name, '-'))])
		if gone, known := o.gone(); !ok || !known || !gone || !isOurs(dir) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			e.opts.Log.Warn("remove a folder that an earlier Orla left", "path", dir, "err", err)
		}
	}
}

// isOurs reports whether a path is a folder of this user, and no link to one.
func isOurs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}
