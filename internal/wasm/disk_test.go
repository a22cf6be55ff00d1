package wasm_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/wasm"
)

// compiledFile returns the file of native code below a folder.
func compiledFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("there are %d files of native code, %v", len(files), err)
	}
	return files[0]
}

// once compiles a module in a runtime of its own, calls it, and returns the log.
func once(t *testing.T, dir string, module []byte) string {
	t.Helper()
	var log bytes.Buffer
	r := wasm.NewRuntime(wasm.Options{CacheDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer r.Close()
	if got := answer(t, compile(t, r, module, wasm.Limits{}), "well"); got != "well" {
		t.Errorf("got %q", got)
	}
	return log.String()
}

// SPEC-TOOLS 3.7: compiled modules are kept on disk, and read from there.
func TestT37CompiledModulesAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "compiled")
	module := buffered(echoing).bytes()
	if log := once(t, dir, module); log != "" {
		t.Error(log)
	}
	before, err := os.Stat(compiledFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if log := once(t, dir, module); log != "" {
		t.Error(log)
	}
	after, err := os.Stat(compiledFile(t, dir))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("it was made anew: %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder's mode is %v, %v", info.Mode(), err)
	}
}

// What is broken on the disk is neither believed nor a reason to fail.
func TestT37BrokenCompiledModulesAreMadeAnew(t *testing.T) {
	module := buffered(echoing).bytes()
	flip := func(at func(data []byte) int) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			data[at(data)] ^= 0xff
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, damage := range map[string]func(t *testing.T, file string){
		"the magic":                flip(func([]byte) int { return 0 }),
		"the number of functions":  flip(func(d []byte) int { return bytes.IndexByte(d, '.') + 8 }),
		"an offset of a function":  flip(func(d []byte) int { return len(d)/8 + 8 }), // which wazero does not check
		"the code":                 flip(func(d []byte) int { return len(d) / 2 }),
		"the end":                  flip(func(d []byte) int { return len(d) - 1 }),
		"all but its first bytes":  func(t *testing.T, file string) { must(t, os.Truncate(file, 20)) },
		"all of it":                func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) },
		"its digest":               func(t *testing.T, file string) { must(t, os.Remove(filepath.Join(file, "..", "..", "sums"))) },
		"what it is":               func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, os.Symlink("/dev/zero", file)) },
		"what stands beside it":    func(t *testing.T, file string) { must(t, os.WriteFile(file+".tmp", nil, 0o600)) },
		"that it can be read":      func(t *testing.T, file string) { must(t, os.Remove(file)); must(t, os.Mkdir(file, 0o700)) },
		"that there is its folder": func(t *testing.T, file string) { must(t, os.RemoveAll(filepath.Dir(file))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Chmod(dir, 0o700))
			once(t, dir, module)
			damage(t, compiledFile(t, dir))
			once(t, dir, module)
			if log := once(t, dir, module); log != "" {
				t.Errorf("it was not mended: %s", log)
			}
		})
	}
}

// Native code is not taken from where others could have put it.
func TestT37AFolderOfOthersIsNotUsed(t *testing.T) {
	module := buffered(echoing).bytes()
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"others may write":  func(t *testing.T, dir string) { must(t, os.Mkdir(dir, 0o700)); must(t, os.Chmod(dir, 0o722)) },
		"a group may write": func(t *testing.T, dir string) { must(t, os.Mkdir(dir, 0o700)); must(t, os.Chmod(dir, 0o770)) },
		"a link":            func(t *testing.T, dir string) { must(t, os.Symlink(t.TempDir(), dir)) },
		"a file":            func(t *testing.T, dir string) { must(t, os.WriteFile(dir, nil, 0o600)) },
		"of another user": func(t *testing.T, dir string) {
			needs.Root(t, "give a folder away")
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.Chown(dir, 65532, 65532))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "compiled")
			prepare(t, dir)
			if log := once(t, dir, module); !strings.Contains(log, "compiled modules are not kept") {
				t.Errorf("the log is %q", log)
			}
			if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
				t.Errorf("there is %v", list)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Two tools that share a module and differ in their limits have it made once, and kept.
func TestOneModuleUnderTwoLimits(t *testing.T) {
	module := buffered(echoing).bytes()
	for range 20 {
		dir := filepath.Join(t.TempDir(), "compiled")
		var log bytes.Buffer
		r := wasm.NewRuntime(wasm.Options{CacheDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { compile(t, r, module, wasm.Limits{MaxMemory: int64(i+2) << 20}) })
		}
		wg.Wait()
		r.Close()
		if said := log.String() + once(t, dir, module); said != "" {
			t.Fatal(said)
		}
	}
}
