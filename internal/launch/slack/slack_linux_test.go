package slack

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// SPEC L1: a process has the usual timer slack, whatever that of Orla's threads is, and they keep theirs.
func TestL1UsualSlack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := current()
	defer set(own)
	for _, had := range []time.Duration{usual / 2, usual, wide} {
		if !set(had) {
			t.Skip("the kernel does not change the timer slack of this thread")
		}
		want := min(had, usual)
		cmd := exec.Command("cat", "/proc/self/timerslack_ns")
		var out strings.Builder
		cmd.Stdout = &out
		_, err := Usual(func() (int, error) { return 0, cmd.Start() })
		if err := errors.Join(err, cmd.Wait()); err != nil {
			t.Fatal(err)
		}
		if got, err := time.ParseDuration(strings.TrimSpace(out.String()) + "ns"); err != nil || got != want {
			t.Errorf("a process that a thread with %s has started has %s, want %s", had, got, want)
		}
		if got := current(); got != had {
			t.Errorf("the thread has %s after a start, want %s", got, had)
		}
	}
}
