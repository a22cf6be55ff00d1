package program

import (
	"os"
	"path/filepath"
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

// SPEC M7, M8: an update runs nothing of what a package needs, also if the configuration allows it and an older version is there: a
// repository of others can have both. With --yes somebody has agreed.
func TestM8AnUpdateRunsNothingThatNobodyAgreedTo(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3")
	i := newInstallable(t)
	mark := filepath.Join(i.home, "ran")
	tool := "#!/usr/bin/env python3\nprint('VERSION')\n"
	i.version("1.0.0", tool, "")
	i.must("install", "--local", i.src)
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\npackages: [{name: say, source: "+i.src+", isolation: none, scripts: true}]\n")
	i.write(i.src, "requirements.txt", "./dep\n")
	i.write(i.src, "dep/pyproject.toml", "[project]\nname = \"dep\"\nversion = \"1\"\n[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n")
	i.write(i.src, "dep/backend.py", "open('"+mark+"', 'w').close()\nraise SystemExit('it ran')\n")
	has := func() bool { _, err := os.Stat(mark); return err == nil }
	i.version("1.1.0", tool, "")
	if out := i.must("update"); has() || !strings.Contains(out, "are installed by its first call") || !strings.Contains(out, "say 1.0.0 -> 1.1.0: updated") {
		t.Errorf("it ran: %v\n%s", has(), out)
	}
	i.version("1.2.0", tool, "")
	if out, err := i.orla("update", "--yes"); err == nil || !has() {
		t.Errorf("with --yes it ran: %v, %v\n%s", has(), err, out)
	}
}
