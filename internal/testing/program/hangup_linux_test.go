package program

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC H2, H4: SIGHUP reloads, also where Orla has a terminal. Once that is gone, it ends Orla, as SIGTERM does.
func TestH4AClosedTerminalEndsOrla(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]*syscall.SysProcAttr{
		// The kernel tells Orla, or the program that the terminal belongs to does, before the terminal is gone.
		"of its own": {Setsid: true, Setctty: true}, "of its shell": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tty, window := testkit.Terminal(t)
			o := startPrepared(t, t.TempDir(), func(cmd *exec.Cmd) {
				cmd.Stdin, cmd.SysProcAttr = tty, own
			}, checkedBinary(t), "--tools-dir", t.TempDir(), "--port", "0")
			log := o.follow()
			log.next("serving", nil)
			o.signal(syscall.SIGHUP)
			log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
			if err := window.Close(); err != nil {
				t.Fatal(err)
			}
			if got := log.next("stopped", nil)["reason"]; got != "signal: hangup" {
				t.Errorf("it stopped: %v", got)
			}
			if code := o.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
