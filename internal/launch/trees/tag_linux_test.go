package trees

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/testing/needs"
)

// A daemon that root starts and that becomes another user's keeps its tag, which
// prlimit says to nobody without CAP_SYS_RESOURCE: root of a container has none.
func TestTheTagOfAnotherUsersProcess(t *testing.T) {
	needs.Root(t, "it starts a process of another user's")
	var own unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &own); err != nil {
		t.Fatal(err)
	}
	tag := InstanceTag("of the test") | 7
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := setTag(0, tag, own); err != nil {
		t.Fatal(err)
	}
	err := cmd.Start()
	if err := setTag(0, own.Cur, own); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()         // it was killed
	defer func() { _ = cmd.Process.Kill() }() // the same
	if got := TagOf(cmd.Process.Pid); got != tag {
		t.Errorf("prlimit or /proc: got %x, want %x", got, tag)
	}
	if got := listedLocks(cmd.Process.Pid); got != tag {
		t.Errorf("/proc: got %x, want %x", got, tag)
	}
	if got := listedLocks(1 << 22); got != 0 {
		t.Errorf("of none: got %x", got)
	}
}
