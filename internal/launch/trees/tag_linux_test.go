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

// sleeper starts a process that ends with the test.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

// SPEC C4: two launchers of one program that fork at the same time give their processes tags of their own. With
// the same tag, the end of one process would end the other.
func TestTagsOfTwoTaggersDiffer(t *testing.T) {
	if !ownLimit() {
		t.Skip("this process has a tag")
	}
	a, b := NewTagger("a", false, 0), NewTagger("b", false, 0)
	beganA := a.Begin()
	began := make(chan *Fork)
	go func() { began <- b.Begin() }()
	ofA := sleeper(t)
	inherited := TagOf(ofA.Process.Pid) // what it has forked by now has this tag
	tagA := a.End(beganA, ofA.Process.Pid, false)
	beganB := <-began
	ofB := sleeper(t)
	tagB := b.End(beganB, ofB.Process.Pid, false)
	if inherited != tagA {
		t.Errorf("the process inherits the tag %x; want %x, its own", inherited, tagA)
	}
	if gotA, gotB := TagOf(ofA.Process.Pid), TagOf(ofB.Process.Pid); gotA != tagA || gotB != tagB || tagA == tagB || !HasInstance(tagA, a.instance) || !HasInstance(tagB, b.instance) {
		t.Errorf("the processes have the tags %x and %x; want %x and %x, of the instances %x and %x", gotA, gotB, tagA, tagB, a.instance, b.instance)
	}
	if own := TagOf(os.Getpid()); own != 0 {
		t.Errorf("afterwards this process has the tag %x", own)
	}
}

// SPEC C4: a fork that hangs, in its exec, does not keep others waiting for long, and all have tags of their own.
func TestAForkThatHangsStopsNoOther(t *testing.T) {
	if !ownLimit() {
		t.Skip("this process has a tag")
	}
	tags := NewTagger("a", false, 0)
	hangs := tags.Begin()
	other := tags.Begin()               // returns after patience
	late, own := sleeper(t), sleeper(t) // at the worst, the first one was not forked before
	tagOfLate := tags.End(hangs, late.Process.Pid, false)
	tag := tags.End(other, own.Process.Pid, false)
	if got := TagOf(own.Process.Pid); got != tag || tag == 0 {
		t.Errorf("the process has the tag %x, want %x", got, tag)
	}
	if got := TagOf(late.Process.Pid); got != tagOfLate || got == tag || got == 0 {
		t.Errorf("the process that hung has the tag %x, want %x, and not %x", got, tagOfLate, tag)
	}
	if own := TagOf(os.Getpid()); own != 0 {
		t.Errorf("afterwards this process has the tag %x", own)
	}
}
