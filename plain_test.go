package orla_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// beside finds what may run beside a test, which is for the race detector to see.
var beside = regexp.MustCompile(`\bgo (func\b|[\w.]+\()|\.(Go|Parallel|AfterFunc)\(|httptest\.`)

// listOf returns the packages of a list of the Makefile.
func listOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(strings.ReplaceAll(string(makefile), "\\\n", " "), "\n"+name+" := ")
	list, _, _ = strings.Cut(list, "\n")
	listed := map[string]bool{}
	for dir := range strings.FieldsSeq(list) {
		listed[filepath.Clean(dir)] = false
	}
	return listed
}

// Tests that the race detector makes slow and has nothing to look for in are compiled without it alone. They start no
// goroutine, and "make test" runs them: their package is one of PLAIN.
func TestWhatIsTestedWithoutTheRaceDetector(t *testing.T) {
	listed := listOf(t, "PLAIN")
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") || entry.Name() == "norace_test.go" { // a constant
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(source), "//go:build !race\n") {
			return err
		}
		if _, is := listed[filepath.Dir(path)]; !is {
			t.Errorf("%s: nobody runs it: its package is not one of PLAIN in the Makefile", path)
		}
		listed[filepath.Dir(path)] = true
		if found := beside.Find(source); found != nil {
			t.Errorf("%s: %q may run something beside the test, which is for the race detector to see", path, found)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, has := range listed {
		if !has {
			t.Errorf("PLAIN in the Makefile has %s, where no test needs it", dir)
		}
	}
}

// A package of PURE and its tests start no goroutine, and call nothing that runs beside them.
func TestPackagesWithoutGoroutines(t *testing.T) {
	pure := listOf(t, "PURE")
	if len(pure) < 10 {
		t.Fatalf("PURE in the Makefile has only %d packages", len(pure))
	}
	for dir := range pure {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("PURE in the Makefile has %s, which is not a package: %v", dir, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if found := beside.Find(source); found != nil {
				t.Errorf("%s: %q may run something beside the test, which is for the race detector to see", file, found)
			}
		}
	}
}
