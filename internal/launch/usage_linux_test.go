package launch_test

import (
	"bufio"
	"os/exec"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
)

// TestUsageOfATree: what a tree takes is counted whole, and nobody else's with it (SPEC J1).
func TestUsageOfATree(t *testing.T) {
	needs.Time(t, "computes to be measured")
	l := newLocal(t)
	idle := start(t, l, shell("read x"))
	// A child that lives, and one that has ended after some work.
	busy := start(t, l, shell(`sleep 60 & i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo $!; wait`))
	pidFrom(t, bufio.NewReader(busy.Stdout))

	got := l.Usage([]int{idle.Pid(), busy.Pid()})
	if u := got[idle.Pid()]; u.Processes != 1 || u.RSS < 100<<10 || u.CPU > time.Second {
		t.Errorf("of a shell that waits: %+v", u)
	}
	if u := got[busy.Pid()]; u.Processes != 2 || u.RSS <= got[idle.Pid()].RSS || u.CPU < 20*time.Millisecond {
		t.Errorf("of a shell that worked, with a child: %+v", u)
	}
	if len(got) != 2 {
		t.Errorf("for two leaders: %+v", got)
	}
}

// TestUsageOfNobody: a process that has ended takes nothing, and nothing is asked for nothing.
func TestUsageOfNobody(t *testing.T) {
	l := newLocal(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if got := l.Usage([]int{gone.Process.Pid}); len(got) != 0 {
		t.Errorf("of a process that has ended: %+v", got)
	}
	if got := l.Usage(nil); len(got) != 0 {
		t.Errorf("of none: %+v", got)
	}
}
