package lockfile

import (
	"os"
	"path/filepath"
	"testing"
)

// SPEC M7: the record of a package is in a folder NAME/VERSION. A file of that name elsewhere, as anybody may write it into /tmp,
// does not hold for what is below it.
func TestM7ARecordElsewhereIsNone(t *testing.T) {
	dir := t.TempDir()
	below := filepath.Join(dir, "notes", "1.0.0", "tools", "deep")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(at string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(at, RecordName), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(dir)
	put(filepath.Join(dir, "notes"))
	if at := Inside(below); at != "" {
		t.Errorf("it is inside of %s", at)
	}
	put(filepath.Join(dir, "notes", "1.0.0")) // also a damaged one
	if at := Inside(below); at != filepath.Join(dir, "notes", "1.0.0") {
		t.Errorf("it is inside of %q", at)
	}
}

// SPEC M4 and R1: a package cannot have the name of a file that has a meaning beside a tool that is one file.
func TestM4NamesOfFilesThatDeclareDependencies(t *testing.T) {
	for name, want := range map[string]bool{
		"requirements.txt": false, "PyProject.toml": false, "package.json": false, "package-lock.json": false, "uv.lock": false, "hello.py.lock": false,
		"notes": true, "requirements": true, "lock": true, "notes.py": true,
	} {
		if got := ValidName(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
