package procfs

import (
	"os/exec"
	"testing"
	"time"
)

// What has no environment for good is not waited for.
func TestNoneIsToldFromNotYet(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "60")
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	late := time.After(time.Minute)
	for !hasNone(cmd.Process.Pid) { // not yet: Start returns in the middle of the exec
		select {
		case <-time.After(execPause):
		case <-late:
			t.Fatal("a process that was given no environment is taken for one that will have one")
		}
	}
}
