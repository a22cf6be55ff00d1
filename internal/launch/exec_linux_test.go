package launch

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// SPEC D2, D11: a process that becomes another program has no environment for a
// moment. A look in that moment must not take it for somebody else's.
func TestAMarkIsSeenThroughAnExec(t *testing.T) {
	const again = `exec /bin/sh -c "$0" "$0"`
	cmd := exec.Command("/bin/sh", "-c", again, again)
	cmd.Env = marked(nil, "", "an-instance.7")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	const looks = 20_000
	unseen := 0
	for range looks {
		environ, err := environOf(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(marksIn(environ), "an-instance.7") {
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
	cmd.Env = marked(nil, "", "an-instance.7")
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
	for range looks {
		environ, err := environOf(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if environ == "" {
			unseen++
		}
	}
	if unseen > 0 {
		t.Errorf("%d of %d looks saw no environment", unseen, looks)
	}
}

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
