//go:build unix

package wasm

import (
	"io/fs"
	"os"
	"syscall"
)

// ours reports whether a folder belongs to this user, and nobody else may write to it.
func ours(folder fs.FileInfo) bool {
	of, ok := folder.Sys().(*syscall.Stat_t)
	return ok && folder.IsDir() && int(of.Uid) == os.Geteuid() && folder.Mode().Perm()&0o022 == 0
}
