package program

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC M8 and R4: what a new version of a simple tool needs is installed while the old one serves. If that is not possible, the old
// one serves on, and the command says why.
func TestM8AnUpdateThatNeedsWhatCannotBeInstalled(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "/usr/bin/python3")
	i := newInstallable(t)
	tool := "#!/usr/bin/env python3\nprint('VERSION')\n"
	i.version("1.0.0", tool, "")
	i.must("install", "--local", i.src)
	o := i.serve()
	o.waitListed("say")
	i.version("1.1.0", tool, "")
	i.write(i.src, "requirements.txt", "nothere==1.0\n")
	cmd := i.command("update", "--yes")
	cmd.Env = append(cmd.Env, "UV_NO_INDEX=1", "UV_OFFLINE=1") // without uv nothing is installed either
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "say 1.1.0 was not installed, and 1.0.0 serves on: dependencies could not be installed") {
		t.Errorf("it ends with %v: %s", err, out)
	}
	if got := strings.TrimSpace(o.mustCall("say")); got != "1.0.0" || !strings.Contains(i.must("verify"), "as the lock has it") {
		t.Errorf("it says %q", got)
	}
}
