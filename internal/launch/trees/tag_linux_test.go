package trees

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// A daemon that root starts and that becomes another user's keeps its tag, which
// prlimit says to nobody without CAP_SYS_RESOURCE: root of a container has none.
func TestTheTagOfAnotherUsersProcess(t *testing.T) {
	needs.Root(t, "it starts a process of another user's")
	if !ownLimit() {
		t.Skip("this process has a tag")
	}
	own := limit.own
	tag := InstanceTag("of the test") | 7
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := setTag(0, tag); err != nil {
		t.Fatal(err)
	}
	err := cmd.Start()
	if err := setTag(0, own.Cur); err != nil {
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

// SPEC C4: two launchers of one program that fork at the same time give their processes tags of their own. With
// the same tag, the end of one process would end the other.
func TestTagsOfTwoTaggersDiffer(t *testing.T) {
	if !ownLimit() {
		t.Skip("this process has a tag")
	}
	a, b := NewTagger("a", false), NewTagger("b", false)
	start := func() *exec.Cmd {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		return cmd
	}
	a.Begin()
	b.Begin()
	ofA := start()
	tagA := a.End(ofA.Process.Pid, false)
	ofB := start()
	tagB := b.End(ofB.Process.Pid, false)
	if gotA, gotB := TagOf(ofA.Process.Pid), TagOf(ofB.Process.Pid); gotA != tagA || gotB != tagB || tagA == tagB || !HasInstance(tagA, a.instance) || !HasInstance(tagB, b.instance) {
		t.Errorf("the processes have the tags %x and %x; want %x and %x, of the instances %x and %x", gotA, gotB, tagA, tagB, a.instance, b.instance)
	}
	if own := TagOf(os.Getpid()); own != 0 {
		t.Errorf("afterwards this process has the tag %x", own)
	}
}
