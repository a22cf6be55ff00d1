package launch

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// SPEC F3: children that a tool makes Orla's, and that have ended, are not kept; how a
// process of Orla's own has ended is still known to who waits for it.
func TestF3ChildrenThatAToolMakesOrlasAreReaped(t *testing.T) {
	const clones = `import ctypes, os
libc = ctypes.CDLL(None)
for _ in range(20):
    if libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x8000 | 17, 0, 0, 0, 0) == 0:  # CLONE_PARENT | SIGCHLD
        os._exit(0)
`
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("no python3: %v", err)
	}
	dead := func() (n int) {
		for _, st := range procfs.All() {
			if st.State == 'Z' && st.Parent == os.Getpid() {
				n++
			}
		}
		return n
	}
	r := newReaper(20 * time.Millisecond)
	defer r.close()
	own := exec.Command("/bin/sh", "-c", "exit 7")
	if _, err := r.Starting(func() (int, error) { err := own.Start(); return own.Process.Pid, err }); err != nil {
		t.Fatal(err)
	}
	tool := exec.Command(python, "-c", clones)
	if _, err := r.Starting(func() (int, error) { err := tool.Start(); return tool.Process.Pid, err }); err != nil {
		t.Fatal(err)
	}
	if err := tool.Wait(); err != nil {
		t.Fatal(err)
	}
	r.Forget(tool.Process.Pid)
	for deadline := time.Now().Add(20 * time.Second); dead() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d dead children are left, of which one is waited for", dead())
		}
	}
	_ = own.Wait()
	if code := own.ProcessState.ExitCode(); code != 7 {
		t.Errorf("the own process ended with %d", code)
	}
	r.Forget(own.Process.Pid)
}

// SPEC L1: while one process is being started, others are started and end. A start can take
// milliseconds where the processors are busy.
func TestL1AStartHoldsUpNoOtherStartAndNoEnd(t *testing.T) {
	r := newReaper(time.Hour)
	defer r.close()
	const first, second = 1 << 30, 1<<30 + 1 // nobody's
	_, _ = r.Starting(func() (int, error) {
		others := make(chan struct{})
		go func() {
			defer close(others)
			_, _ = r.Starting(func() (int, error) { return second, nil })
			r.Forget(second)
		}()
		select {
		case <-others:
		case <-time.After(20 * time.Second):
			t.Error("another process is neither started nor forgotten")
		}
		return first, nil
	})
	r.Forget(first)
}
