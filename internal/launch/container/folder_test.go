package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A profile is there again when its folder was swept, as /tmp is of what is old,
// and who reads it while it is written again reads the whole of it.
func TestT73TheProfileIsAlwaysWhole(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	e := NewEngine(EngineOptions{})
	defer e.Close()
	write := func() string {
		path, err := e.filter(&made{podman: true}, "")
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := write()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if again := write(); again != path {
		t.Errorf("it is at %s, and was at %s", again, path)
	}
	after, err := os.Stat(path)
	if err != nil || after.Size() != before.Size() || after.Size() == 0 || os.SameFile(before, after) {
		t.Errorf("it was written over: %v, and was %v; %v", after, before, err)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(write()); err != nil {
		t.Error(err)
	}
	e.Close()
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("%s is left, %v", strings.Join(left, " "), err)
	}
}
