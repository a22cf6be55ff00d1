package trees

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/orla-project/orla/internal/launch/procfs"
)

// SPEC D2, D11: a process that becomes another program has no environment for a
// moment. A look in that moment must not take it for somebody else's.
func TestAMarkIsSeenThroughAnExec(t *testing.T) {
	const again = `exec /bin/sh -c "$0" "$0"`
	cmd := exec.Command("/bin/sh", "-c", again, again)
	cmd.Env = Marked(nil, "", "an-instance.7")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	const looks = 20_000
	unseen := 0
	buf := make([]byte, procfs.MaxEnviron)
	for range looks {
		environ, err := procfs.Environ(cmd.Process.Pid, buf)
		if err != nil {
			t.Fatal(err)
		}
		if !Bears(environ, "an-instance.7") {
			unseen++
		}
	}
	if unseen > 0 {
		t.Errorf("%d of %d looks did not see whose it is", unseen, looks)
	}
}

// An environment of many entries is set up for long: for all that time it looks
// like none.
func TestAMarkIsSeenWhileTheEnvironmentIsSetUp(t *testing.T) {
	const again = `exec /bin/sh -c "$0" "$0"`
	cmd := exec.Command("/bin/sh", "-c", again, again)
	cmd.Env = Marked(nil, "", "an-instance.7")
	for i := range 20_000 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("X%d=", i))
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	const looks = 200
	unseen := 0
	buf := make([]byte, procfs.MaxEnviron)
	for range looks {
		environ, err := procfs.Environ(cmd.Process.Pid, buf)
		if err != nil {
			t.Fatal(err)
		}
		if len(environ) == 0 {
			unseen++
		}
	}
	if unseen > 0 {
		t.Errorf("%d of %d looks saw no environment", unseen, looks)
	}
}
