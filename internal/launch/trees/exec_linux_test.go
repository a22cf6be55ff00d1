package trees

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/orla-project/orla/internal/launch/procfs"
	"github.com/orla-project/orla/internal/testing/needs"
)

// environOf returns the environment of a process as a look finds it.
func environOf(t *testing.T, pid int) []byte {
	t.Helper()
	var environs procfs.Environs
	environ, err := environs.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := environs.Wait(func(_ int, late []byte) { environ = late }); err != nil {
		t.Fatal(err)
	}
	return environ
}

// SPEC D2, D11: a process that becomes another program has no environment for a
// moment. A look in that moment waits for it a little, and the next one finds it. Its tag
// is there all the time.
func TestAMarkIsSeenThroughAnExec(t *testing.T) {
	needs.Time(t, "executes without a pause")
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
	looks, unseen := needs.Rounds(5000, 5000), 0
	most := max(20, looks/1000) // a machine that is busy may stop a process in its exec, for several looks
	for range looks {
		if Bears(environOf(t, cmd.Process.Pid), "an-instance.7") {
			continue
		}
		if unseen++; unseen > most {
			t.Fatalf("%d of at most %d looks did not see whose it is", unseen, looks)
		}
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
	for range looks {
		if len(environOf(t, cmd.Process.Pid)) == 0 {
			unseen++
		}
	}
	if unseen > 0 {
		t.Errorf("%d of %d looks saw no environment", unseen, looks)
	}
}
