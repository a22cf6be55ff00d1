package launch

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
)

// SPEC C4: a file that is away while it is started, as its folder is replaced, is not
// said to lack an interpreter.
func TestAMomentsAbsenceIsNotAMissingInterpreter(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]fault.Code{
		"/bin/sh":                            fault.StartFailed, // with a loader
		self:                                 fault.StartFailed,
		write("here", "#!/bin/sh -e\n"):      fault.StartFailed,
		write("blank", "#! /bin/sh\n"):       fault.StartFailed,
		write("absent", "#!/no/such/shell"):  fault.UnsupportedTool,
		write("spaced", "#! /no/such/sh -e"): fault.UnsupportedTool,
	} {
		if f := diagnose(Spec{Path: path, Dir: dir}, syscall.ENOENT); f.Code != want {
			t.Errorf("%s: %v, want %s", path, f, want)
		}
	}
}
