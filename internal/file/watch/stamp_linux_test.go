package watch

import (
	"hash/maphash"
	"os"
	"path/filepath"
	"testing"
)

// SPEC S2: a link to a file that the kernel makes is not read: some of these wait for data.
func TestNoFileThatTheKernelMakesIsRead(t *testing.T) {
	const made = "/proc/self/status"
	link := filepath.Join(t.TempDir(), "link")
	mustDo(t, os.Symlink(made, link))
	info, err := os.Stat(link)
	mustDo(t, err)
	r := &reader{seed: maphash.MakeSeed(), left: maxReadAtOnce}
	if r.sum(link, stampOf(info)) != 0 || r.left != maxReadAtOnce {
		t.Errorf("%d bytes of %s were read", maxReadAtOnce-r.left, made)
	}
}
