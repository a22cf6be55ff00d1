package wasm_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/wasm"
)

// built compiles a Go program of testdata to WebAssembly, once. With the race
// detector a compiler takes ten times as long: then a test without it puts the
// native code on the disk, where the others find it.
func built(t testing.TB, name string) []byte {
	t.Helper()
	needs.Time(t, "compiles a module")
	buildMu.Lock()
	defer buildMu.Unlock()
	if module := modules[name]; module != nil {
		return module
	}
	out := filepath.Join(t.TempDir(), "module.wasm")
	build := exec.Command("go", "build", "-o", out, "./testdata/"+name)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if detectsRaces {
		program, err := withoutRaces()
		if err != nil {
			t.Fatal(err)
		}
		warm := exec.Command(program, "-test.run=^TestWarm$")
		warm.Env = append(os.Environ(), warmDir+"="+kept, warmModule+"="+out)
		if said, err := warm.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	modules[name] = module
	return module
}

// mostOutput is how many bytes the modules of most tests may answer.
const mostOutput = 8 << 20

// withoutRaces builds these tests without the race detector. What they import is compiled
// as for make build, which may have done so.
var withoutRaces = sync.OnceValues(func() (string, error) {
	program := filepath.Join(kept, "plain.test")
	build := exec.Command("go", "test", "-c", "-trimpath", "-vet=off", "-ldflags=-s -w", "-o", program, ".")
	build.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	return program, nil
})

// What TestWarm compiles, and where to, for another test.
const (
	warmDir    = "ORLA_TEST_WARM_DIR"
	warmModule = "ORLA_TEST_WARM_MODULE"
)

// TestWarm is run by built.
func TestWarm(t *testing.T) {
	if os.Getenv(warmDir) == "" {
		t.Skip("it is for other tests to run")
	}
	module, err := os.ReadFile(os.Getenv(warmModule))
	if err != nil {
		t.Fatal(err)
	}
	compile(t, newRuntime(t, wasm.Options{CacheDir: os.Getenv(warmDir)}), module, wasm.Limits{WASI: true})
}

var (
	buildMu sync.Mutex
	modules = map[string][]byte{}
)

// shared is the runtime of the tests that need none of their own. What is compiled
// for one is there for the next, and on the disk for those of newRuntime.
var (
	shared *wasm.Runtime
	kept   string
)

func TestMain(m *testing.M) {
	var err error
	if kept, err = os.MkdirTemp("", "orla-wasm"); err != nil {
		panic(err)
	}
	shared = wasm.NewRuntime(wasm.Options{CacheDir: kept, Log: slog.New(slog.DiscardHandler)})
	code := m.Run()
	shared.Close()
	_ = os.RemoveAll(kept) // it is in the folder of temporary files
	os.Exit(code)
}

func newRuntime(t testing.TB, opts wasm.Options) *wasm.Runtime {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.CacheDir == "" {
		opts.CacheDir = kept
	}
	r := wasm.NewRuntime(opts)
	t.Cleanup(r.Close)
	return r
}

func compile(t testing.TB, r *wasm.Runtime, module []byte, limits wasm.Limits) *wasm.Module {
	t.Helper()
	m, err := r.Compile(t.Context(), module, limits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// answer runs a module that must answer.
func answer(t testing.TB, m *wasm.Module, input string) string {
	t.Helper()
	out, err := m.Run(t.Context(), []byte(input), mostOutput)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Stderr)
	}
	return string(out.Stdout)
}

// fails checks an error's code, and that its reason has all those words.
func fails(t testing.TB, err error, code fault.Code, retryable bool, words ...string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Code != code || f.Retryable() != retryable {
		t.Errorf("got the error %v; want %s, retryable %v", err, code, retryable)
		return
	}
	for _, word := range words {
		if !strings.Contains(f.Reason, word) {
			t.Errorf("got the reason %q; want it to say %q", f.Reason, word)
		}
	}
}

const (
	endless   = 1 << 60
	fewUnits  = 1000
	oneSecond = 1_000_000_000
)
