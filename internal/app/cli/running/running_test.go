package running

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
)

// SPEC J3: a capsule that has listed no tool, or none that is served, is not called unread or unknown.
func TestJ3ACapsuleWithoutTools(t *testing.T) {
	status := &control.Status{Tools: []control.ToolStatus{
		{Name: "crashy", State: "CRASHED", Reason: "it exited with code 1"},
		{Name: "noisy", State: "READY"},
		{Name: "idle", State: "STOPPED"},
		{Name: "notes", State: "READY"},
		{Name: "plain", Kind: "simple"},
	}}
	tools := []control.ListedTool{{Name: "notes", Of: "notes"}, {Name: "plain"}}
	for name, want := range map[string]string{
		"crashy": "crashy is CRASHED: it exited with code 1", "crashy__a": "crashy is CRASHED: it exited with code 1",
		"noisy": "noisy is READY, and none of its tools is served", "idle": "idle is STOPPED, and none of its tools is served",
		"nosuch": `there is no tool "nosuch"`,
	} {
		if served, err := noToolIn(status, name, tools); err == nil || err.Error() != want || served != (name != "nosuch") {
			t.Errorf("%s: %v, %v; want %s", name, served, err, want)
		}
	}
}

// SPEC J1: a socket of another user is named once.
func TestJ1ASocketOfAnotherUserIsNamedOnce(t *testing.T) {
	const path = "/run/orla/x.sock"
	refused := &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"}, Err: os.NewSyscallError("connect", syscall.EACCES)}
	if got := Explain(fmt.Errorf("%s: %w", path, refused)).Error(); got != path+": permission denied" {
		t.Error(got)
	}
}
