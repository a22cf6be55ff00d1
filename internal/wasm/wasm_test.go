package wasm_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/wasm"
)

// built compiles a Go program of testdata to WebAssembly.
func built(t testing.TB, name string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", out, "./testdata/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func newRuntime(t testing.TB) *wasm.Runtime {
	r := wasm.NewRuntime(wasm.Options{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(r.Close)
	return r
}

func TestT37Echo(t *testing.T) {
	r := newRuntime(t)
	m, err := r.Compile(t.Context(), built(t, "echo"), wasm.Limits{WASI: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Run(t.Context(), []byte(`{"input":"hello"}`), 0)
	t.Logf("%s %s %d %d", out.Stdout, out.Stderr, out.FuelUsed, out.MemoryPeak)
	if err != nil {
		t.Fatal(err)
	}
}
