//go:build amd64 || arm64

package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/testing/needs"
)

// TestM7AGrantThatIsSwapped: somebody who may change the folder of a granted path exchanges the path, while tools are
// started, for a link to another folder. No tool sees what is there (SPEC M7).
func TestM7AGrantThatIsSwapped(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for folder := dir; folder != "/tmp" && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
			t.Fatal(err)
		}
	}
	const folders = 50
	var granted []string
	for i := range folders {
		path := filepath.Join(dir, fmt.Sprint("granted-", i))
		granted = append(granted, path)
		for folder, content := range map[string]string{path: "content", path + ".behind": "secret"} {
			if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // the same
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, "f"), []byte(content), 0o644); err != nil { //nolint:gosec // the same
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Base(path)+".behind", path+".link"); err != nil {
			t.Fatal(err)
		}
	}
	stop := swap(t, granted)
	defer stop()
	spec := launch.Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "cat " + dir + "/granted-*/f"}, Env: []string{"PATH=/usr/bin:/bin"}, Input: []byte{}, Whole: true}
	starts, refused := needs.Rounds(40, 80), 0
	for range starts {
		p, err := host.Launcher(sandbox.Options{Reads: granted[:folders/2], Writes: granted[folders/2:]}).Start(t.Context(), spec)
		if err != nil {
			if !strings.Contains(err.Error(), "is now a link") && !strings.Contains(err.Error(), "was exchanged") {
				t.Fatal(err)
			}
			refused++
			continue
		}
		if text, _ := output(p); strings.Contains(text, "secret") || !strings.Contains(text, "content") {
			t.Fatalf("it reads %q", text)
		}
	}
	stop()
	if refused == starts || refused == 0 {
		t.Errorf("%d of %d starts were refused: this test proves nothing", refused, starts)
	}
	t.Logf("%d starts, %d refused", starts, refused)
	if text := said(t, host.Launcher(sandbox.Options{Reads: granted}), spec); text != strings.Repeat("content", folders) {
		t.Errorf("when nobody swaps any more, it reads %q", text)
	}
}

// swap exchanges one path after the other with the link beside it, and back, until the function that it returns is called.
func swap(t *testing.T, paths []string) (stop func()) {
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for {
			for _, path := range paths {
				for range 2 {
					if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, path+".link", unix.RENAME_EXCHANGE); err != nil {
						t.Error(err)
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		over.Wait()
	})
}
