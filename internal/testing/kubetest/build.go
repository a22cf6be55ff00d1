package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds a static program from a folder of Go files, and returns it.
func Build(t testing.TB, folder string) []byte {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, folder)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", folder, err, out)
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
