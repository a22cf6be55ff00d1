//go:build amd64 || arm64

package shim

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SPEC-TOOLS 7.3: a path is opened without following a link, wherever it is.
func TestOpenFollowsNoLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.WriteFile(filepath.Join(dir, "a", "file"), nil, 0o600),
		os.Symlink("a", filepath.Join(dir, "link")), os.Symlink("file", filepath.Join(dir, "a", "last")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		"/": nil, dir: nil, dir + "/a/b": nil, dir + "/a/b/": nil, dir + "//a/file": nil,
		dir + "/link/b": syscall.ELOOP, dir + "/a/last": syscall.ELOOP, dir + "/link": syscall.ELOOP,
		dir + "/a/../a": syscall.EINVAL, "a": syscall.EINVAL, "": syscall.EINVAL,
		dir + "/none": syscall.ENOENT, dir + "/a/file/b": syscall.ENOTDIR,
	} {
		fd, err := Open(path)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
		if err == nil {
			_ = syscall.Close(fd)
		}
	}
	before, _ := os.ReadDir("/proc/self/fd")
	for range 10 {
		_, _ = Open(dir + "/link/b") // it fails
	}
	if after, _ := os.ReadDir("/proc/self/fd"); len(after) > len(before) {
		t.Errorf("%d descriptors, before %d", len(after), len(before))
	}
}
