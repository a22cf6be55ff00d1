package watch

import (
	"path"
	"slices"
	"strings"
)

// Ignored is used if Options.Ignore is nil. It ignores what version control, package managers and
// interpreters keep next to source files, and what editors write while they save. It checks only the
// last element of the path.
func Ignored(name string, isDir bool) bool {
	base := path.Base(name)
	if isDir {
		return slices.Contains([]string{".git", "node_modules", "__pycache__", ".venv", "venv"}, base)
	}
	switch base {
	case ".git", // a worktree's or submodule's pointer file
		"4913", // vim makes it to find out whether the folder is writable
		".DS_Store":
		return true
	}
	for _, prefix := range []string{".#", ".goutputstream-"} {
		if strings.HasPrefix(base, prefix) {
			return true
		}
	}
	for _, suffix := range []string{".pyc", "~", ".swp", ".swo", ".swx", ".tmp", "___jb_tmp___", "___jb_old___", ".kate-swp"} {
		if strings.HasSuffix(base, suffix) {
			return true
		}
	}
	return len(base) > 1 && strings.HasPrefix(base, "#") && strings.HasSuffix(base, "#")
}
