package program

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// The doctor tells a terminal what it waits for; stdout has the findings alone (SPEC J1).
func TestDoctorTellsATerminalWhatTakesLong(t *testing.T) {
	t.Parallel()
	needs.Time(t, "examines the machine")
	tty, shown := testkit.OpenTerminal(t)
	cmd := exec.Command(orlaBinary(t), "doctor", "--json", "--tools-dir", t.TempDir(), "--port", "0", "--tool-container-engine", "/nowhere/podman")
	cmd.Stderr = tty
	out, _ := cmd.Output() // what this machine lacks is a failure
	if !strings.HasPrefix(string(out), "[") || strings.Contains(string(out), "…") {
		t.Errorf("stdout gets %s", out)
	}
	_, _ = tty.WriteString("end")
	got := shown()
	for !strings.HasSuffix(got, "end") { // a busy machine gives it in pieces
		got += shown()
	}
	const want = "making a native sandbox …\r\nrunning a container, for at most 25s …\r\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("the terminal gets %q, want %q", got, want)
	}
}
