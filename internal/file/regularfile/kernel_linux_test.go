package regularfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// Such a file says that it is regular, and reads of some of them wait: /proc/kmsg,
// which only root may open.
func TestS2NoFileThatTheKernelMakesIsRead(t *testing.T) {
	for _, target := range []string{"/proc/self/status", "/proc/version", "/sys/kernel/uevent_seqnum", "/proc/kmsg"} {
		if _, err := os.Stat(target); err != nil {
			continue // this kernel has none
		}
		link := filepath.Join(t.TempDir(), "k.yaml")
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		f, _, err := regularfile.Open(link)
		if err == nil {
			_ = f.Close()
		}
		isRoot := os.Geteuid() == 0
		if err == nil || isRoot && !strings.Contains(err.Error(), "is not a regular file but one that the kernel makes") {
			t.Errorf("Open of a link to %s: %v, want that the kernel makes it", target, err)
		}
	}
}

func TestAnEmptyFileIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := regularfile.Read(file, 10); err != nil || len(data) > 0 {
		t.Errorf("Read = %q, %v; want nothing", data, err)
	}
}
