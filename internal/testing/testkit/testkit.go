// Package testkit has what the tests of several packages need: to wait for what
// happens, and to write and read files.
package testkit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait of these tests. It is long because the machines
// are small; nothing waits for it unless something is wrong.
const Patience = 30 * time.Second

// WriteTool writes an executable.
func WriteTool(t *testing.T, dir, name, body string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// Written aside and renamed, as editors do: nobody sees half of it. Aside is
	// elsewhere, since a watcher would tell of a second file on a busy machine.
	aside := filepath.Join(t.TempDir(), "tool")
	if err := WriteProgram(aside, []byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// WriteProgram writes an executable file that this process may run at once. No test beside it forks while the file is open for
// writing: its child would have it open as well, and the kernel runs no such file (ETXTBSY).
func WriteProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755) //nolint:gosec // it is run
}

// ReadFile returns what a file holds.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Eventually polls until ok reports true, for a minute at most. Where ok takes long, such as one that runs a program, it
// pauses longer: the wait takes a quarter of a core at most, and what is waited for has the rest.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(2 * Patience)
	for {
		began := time.Now()
		if ok() {
			return
		}
		select {
		case <-time.After(min(max(2*time.Millisecond, 3*time.Since(began)), 200*time.Millisecond)):
		case <-deadline:
			t.Fatalf("%s: not so after %s", what, 2*Patience)
		}
	}
}

// BuildFlags are the flags with which this test was compiled itself. A build with them finds the packages that they
// have in common in the cache.
func BuildFlags() (flags []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, s := range info.Settings {
		if (s.Key == "-race" || s.Key == "-trimpath") && s.Value == "true" {
			flags = append(flags, s.Key)
		}
	}
	return flags
}

// LinesOf parses a log file, of which each line must be whole.
func LinesOf(t *testing.T, path string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for raw := range bytes.Lines(data) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%s: %q: %v", path, raw, err)
		}
		lines = append(lines, line)
	}
	return lines
}
