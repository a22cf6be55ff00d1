package program

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC L1: the timers of all of Orla's threads may be late, so that they wake seldom. Those of its tools may be as late
// as everywhere.
func TestL1TimerSlack(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "slack", "#!/bin/sh\ncat /proc/self/timerslack_ns\n")
	o := startCommand(t, t.TempDir(), orlaBinary(t), "--config", writeConfig(t, tools, ""))
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	if got := o.mustCall("slack"); strings.TrimSpace(got) != "50000" {
		t.Errorf("the timers of a tool may be %q ns late, want 50000", got)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", o.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		got, err := os.ReadFile(fmt.Sprintf("/proc/%s/timerslack_ns", thread.Name()))
		if os.IsPermission(err) {
			t.Skip("only root may see the timer slack of other processes")
		}
		if err == nil && strings.TrimSpace(string(got)) != "500000" { // else the thread has just ended
			t.Errorf("the timers of thread %s may be %s ns late, want 500000", thread.Name(), got)
		}
	}
}
