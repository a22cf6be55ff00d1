package trees

import (
	"bufio"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch/procfs"
	"github.com/orla-project/orla/internal/testing/needs"
)

// headless is a program whose first thread ends, which the kernel shows as a
// zombie, and whose second one lives on until stdin ends.
const headless = `
import ctypes, os, sys, threading
def rest():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
        pass
    print("headless", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
`

// SPEC D2: a process is dead when its last thread is. That of a process that is
// being killed may well not be its first one, and what it holds it holds until then.
func TestAZombieWithThreadsIsAlive(t *testing.T) {
	needs.Programs(t, "python3")
	cmd := exec.Command("python3", "-c", headless)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it is over, unless something is wrong
		_ = cmd.Wait()         // killed, or ended well
	})
	pid := cmd.Process.Pid
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	s := Process{pid, StartOf(pid)}
	var member Process
	if !s.Alive() || !GroupAlive(pid, &member) {
		t.Errorf("it is taken for dead: as a process: %t, as a group: %t", !s.Alive(), !GroupAlive(pid, &member))
	}
	if rss, cpu, ok := procfs.Usage(pid); !ok || cpu == 0 { // the kernel tells no memory of it
		t.Errorf("it takes %d, %s, %t", rss, cpu, ok)
	}
	_ = in.Close() // so that it ends
	late := time.After(time.Minute)
	for s.Alive() { // nobody has reaped it
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("it is taken for alive when it has ended")
		}
	}
}
