//go:build amd64 || arm64

package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// TestM7HiddenPathsThatComeLater: a process that may read a folder above hidden paths does not see one that is made, or
// put in place, after its start (SPEC M7).
func TestM7HiddenPathsThatComeLater(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, text string) {
		t.Helper()
		err := errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o755), os.WriteFile(at(name), []byte(text), 0o644)) //nolint:gosec // nothing but the sandbox is to be in the way
		if err != nil {
			t.Fatal(err)
		}
	}
	put("project/docs/text", "hello\n")
	put("project/tools/x/own", "own\n")
	put("project/orla.yaml", "HUNTER2\n")
	put("out/f", "")
	for folder := dir; folder != "/tmp" && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("docs", at("project/link")), os.Symlink("tools", at("project/tolink"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(at("out"), 0o777); err != nil { //nolint:gosec // the same
		t.Fatal(err)
	}
	script := `cd DIR; cat project/docs/text project/link/text project/tools/x/own; echo ready >out/ready
n=0; while [ ! -e out/go ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n+1)); done
find . -type f | sort; cat project/secrets/token project/tools/y/secret project/orla.yaml state/env/key project/tolink/y/secret; exit 0`
	opts := sandbox.Options{Reads: []string{dir}, Writes: []string{at("out")}, Hidden: []string{at("project/tools"), at("project/secrets"), at("project/orla.yaml"), at("state/env")}}
	spec := launch.Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", strings.ReplaceAll(script, "DIR", dir)}, Env: []string{"PATH=/usr/bin:/bin"}, Input: []byte{}, Whole: true, Expose: []string{at("project/tools/x")}}
	done := make(chan string)
	go func() { done <- said(t, host.Launcher(opts), spec) }()
	testkit.Eventually(t, "it runs", func() bool { _, err := os.Stat(at("out/ready")); return err == nil })
	put("project/secrets/token", "HUNTER2\n")
	if err := os.Rename(at("project/tools"), at("project/before")); err != nil {
		t.Fatal(err)
	}
	put("project/tools/y/secret", "HUNTER2\n")
	put("state/env/key", "HUNTER2\n")
	put("project/new.yaml", "HUNTER2\n")
	if err := os.Rename(at("project/new.yaml"), at("project/orla.yaml")); err != nil {
		t.Fatal(err)
	}
	put("out/go", "")
	got := <-done
	if strings.Contains(got, "HUNTER2") || !strings.Contains(got, "hello\nhello\nown\n") {
		t.Errorf("it sees\n%s", got)
	}
}
