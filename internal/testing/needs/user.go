package needs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user that owns nothing.
const nobody = 65532

// Unprivileged reports whether the test runs as an ordinary user, whom modes keep
// from files. If it runs as root, the test is run again as one, in a process of its
// own, and the caller returns.
func Unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	dir, err := os.MkdirTemp("", "orla-user-*") //nolint:usetesting // the user may come to here
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the folder for temporary files
	program := filepath.Join(dir, "test")
	if err := copyProgram(dir, program); err != nil {
		t.Fatal(err)
	}
	name := "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", name)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
	return false
}

// copyProgram copies the test binary to where all users may run it.
func copyProgram(dir, to string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	body, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, body, 0o755); err != nil { //nolint:gosec // others are to run it
		return err
	}
	return os.Chmod(to, 0o755)
}
