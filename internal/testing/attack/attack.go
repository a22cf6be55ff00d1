// Package attack builds a program that tries to break out of where it runs, for
// the tests of each place that processes live in (SPEC-TOOLS 7.2). Only tests
// import it.
//
// The program is static. Each attack is a subcommand, and its last line says
// "held: WHY" or "BROKE: WHAT"; the subcommand each makes several in one process.
// What an attack does to somebody outside is for the test to see.
package attack

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	mu  sync.Mutex // guards dir
	dir string
)

// Program returns the path of the program, which anybody may execute. It is
// built once; the TestMain of its users calls Remove.
func Program(t testing.TB) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	path := filepath.Join(dir, "attack")
	if dir != "" {
		return path
	}
	made, err := os.MkdirTemp("", "orla-attack-*") //nolint:usetesting // all tests of a package share it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(made, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(made, "attack")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/orla-project/orla/internal/testing/attack/testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir = made
	return path
}

// Remove removes what Program built.
func Remove() {
	mu.Lock()
	defer mu.Unlock()
	if dir != "" {
		_ = os.RemoveAll(dir)
		dir = ""
	}
}
