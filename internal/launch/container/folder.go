package container

import (
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
	// The first, or the old one is swept: who keeps /tmp clean takes what is old.
	var err error
	e.dir, err = os.MkdirTemp("", folderPrefix+e.owner+"-*") // 0700
	return e.dir, err
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
