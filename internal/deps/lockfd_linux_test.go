package deps

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// SPEC R3: an environment can be used as soon as it is built, while another process is being started: until that executes
// its program, it has all files of this one, and so the lock of the build.
func TestR3TheLockOfABuildIsNotInherited(t *testing.T) {
	s := store(t, t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	need := detect(t, s, shell(t, "cat '"+gate+"'; touch $ORLA_ENV/made"))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Build(t.Context(), need, quiet)
		ended <- err
	}()
	opened, err := os.OpenFile(gate, os.O_WRONLY, 0) // when the installer runs
	if err != nil {
		t.Fatal(err)
	}
	links, _ := filepath.Glob("/proc/self/fd/*")
	var locks []int
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == s.lockFile(need.Digest) {
			fd, err := strconv.Atoi(filepath.Base(link))
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, fd)
		}
	}
	if len(locks) != 1 {
		t.Fatalf("there are %d locks", len(locks))
	}
	inherited, err := syscall.Dup(locks[0]) // only now: it may get the number of the folder that was just read
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }() // it was only locked
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
