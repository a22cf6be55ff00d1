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

// A file is read in the same way whether it is opened first or not.
func TestS2AHeadIsOfARegularFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{4: "0123", 10: "0123456789", 11: "0123456789", 1 << 40: "0123456789"} {
		if head, size, err := regularfile.Head(file, most); string(head) != want || size != 10 || err != nil {
			t.Errorf("Head of %d bytes = %q, %d, %v", most, head, size, err)
		}
	}
	for path, want := range map[string]string{
		dir: "is not a regular file but a folder", "/dev/null": "is not a regular file but a device",
		"/proc/self/status": "is not a regular file but one that the kernel makes", filepath.Join(dir, "none"): "no such file",
	} {
		if _, _, err := regularfile.Head(path, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Head of %s: %v, want %q", path, err, want)
		}
	}
}

// A path below a folder is resolved as any other.
func TestAPathIsResolvedBelowAFolder(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "a/b", "a/up": "..", "a/b/out": "/", "loop": "loop", "nowhere": "none"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{dir, "/"} {
		for _, rel := range []string{
			".", "a", "a/b", "a/b/file", "a/b/file/x", "link", "link/file", "a/up/a/b/file", "link/out", "link/out/..", "loop", "nowhere", "none", "a/none",
			"..", "../..", "a/../a/b/file", "a//b/./file", "link/../b", "tmp", "proc/self", "",
		} {
			got, gotErr := regularfile.ResolveBelow(of, rel)
			want, wantErr := filepath.EvalSymlinks(filepath.Join(of, rel))
			if got != want || (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != wantErr.Error() {
				t.Errorf("%s below %s: %q, %v; want %q, %v", rel, of, got, gotErr, want, wantErr)
			}
		}
	}
}
