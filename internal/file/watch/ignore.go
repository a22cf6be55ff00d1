package watch

import (
	"path"
	"slices"
	"strings"
)

// Ignored is the list that holds when Options.Ignore is nil: what version
// control, package managers and interpreters keep beside the source, and what
// editors write while they save. It looks at the last element of the path only.
func Ignored(name string, isDir bool) bool {
	base := path.Base(name)
	if isDir {
		return slices.Contains([]string{".git", "node_modules", "__pycache__", ".venv", "venv"}, base)
	}
	switch base {
	case ".git", // a worktree's or submodule's pointer file
		"4913", // vim asks with it whether the folder can be written to
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
