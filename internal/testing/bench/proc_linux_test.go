package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestAProcessIsSeenFromOutside(t *testing.T) {
	pid := os.Getpid()
	// A child that burns CPU until it is over and reaped.
	if err := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	seen, err := cpuOf(pid)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ownCPU()
	if err != nil {
		t.Fatal(err)
	}
	if off := (own.own - seen.own).Abs(); off > 50*time.Millisecond {
		t.Errorf("own CPU time is %v from inside and %v from outside", own.own, seen.own)
	}
	if off := (own.children - seen.children).Abs(); off > 4*tick {
		t.Errorf("the CPU time of children is %v from inside and %v from outside", own.children, seen.children)
	}
	if m, err := memoryOf(pid); err != nil || m.rss < m.pss || m.pss < 1<<20 {
		t.Errorf("memory %+v, %v", m, err)
	}
	if n, err := descriptorsOf(pid); err != nil || n < 3 {
		t.Errorf("%d descriptors, %v", n, err)
	}
	if n, err := switchesOf(pid); err != nil || n == 0 {
		t.Errorf("%d context switches, %v", n, err)
	}
}

func TestChildrenAreFound(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pids, err := childrenOf(os.Getpid())
	if err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("got %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	if _, err := childrenOf(0); err == nil {
		t.Error("there is no process 0")
	}
}
