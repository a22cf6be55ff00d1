package wholefile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/file/wholefile"
)

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, "a")
	if err := wholefile.Write(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := wholefile.Write(path, []byte("two")); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if os.SameFile(before, after) || after.Mode().Perm() != 0o600 {
		t.Errorf("it was written over, or has mode %v", after.Mode())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "two" {
		t.Errorf("it has %q, %v", data, err)
	}
	// A folder is in the way: nothing is changed, and nothing is left.
	if err := os.MkdirAll(filepath.Join(dir, "b", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := wholefile.Write(filepath.Join(dir, "b"), nil); err == nil {
		t.Error("a folder was replaced")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 2 {
		t.Errorf("there are %v, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, wholefile.Prefix+"*")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestWriteSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "a")
	for _, text := range []string{"one", "two"} {
		if err := wholefile.WriteSynced(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("it has %q, %v", data, err)
		}
	}
	if err := wholefile.WriteSynced(filepath.Join(path, "b"), nil); err == nil {
		t.Error("a file in a file was written")
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	long := time.Now().Add(-2 * time.Hour)
	for _, f := range []struct {
		name string
		when time.Time
	}{{wholefile.Prefix + "1", long}, {wholefile.Prefix + "2", time.Now()}, {"a", long}} {
		path := filepath.Join(dir, f.name)
		if err := wholefile.Write(path, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, f.when, f.when); err != nil {
			t.Fatal(err)
		}
	}
	wholefile.Sweep(dir)
	wholefile.Sweep(filepath.Join(dir, "none"))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, wholefile.Prefix+"2"), filepath.Join(dir, "a")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v is left, %v; want %v", left, err, want)
	}
}
