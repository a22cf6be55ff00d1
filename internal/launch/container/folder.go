package container

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folderPrefix begins the name of an Engine's temporary folder. The owner and a random word follow.
const folderPrefix = "orla-containers-"

// temp returns the folder for files that engines read: seccomp profiles and, during a pull, the
// credentials. Only this user can read it. Close removes it; if Orla is killed, the Sweep of a later
// Orla does.
func (e *Engine) temp() (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir != "" && isOurs(e.dir) {
		return e.dir, nil
	}
	// When the first file is made, make a new folder: programs that clean /tmp may have removed an old
	// one.
	var err error
	e.dir, err = os.MkdirTemp("", folderPrefix+e.owner+"-*") // 0700
	return e.dir, err
}

// sweepFolders removes the folders of killed Orlas of this user.
func (e *Engine) sweepFolders() {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return // only a bad pattern is an error
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

// isOurs reports whether a path is a folder of this user and not a link.
func isOurs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}
