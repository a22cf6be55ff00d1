package systemd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// debOfThis builds the package of this machine, once for all tests. TestMain
// removes what it leaves.
var debOfThis = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("scripts/package", "deb", runtime.GOARCH)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "DIST="+dist)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("scripts/package: %w\n%s", err, out)
	}
	built, err := filepath.Glob(filepath.Join(dist, "*.deb"))
	if err != nil || len(built) != 1 {
		return "", fmt.Errorf("scripts/package made %q: %w", built, err)
	}
	return built[0], nil
})

// underRealSystemd runs scripts/systemd-test, and makes a test of each verdict.
// Where the tools for it are missing it is skipped, unless ORLA_TEST_SYSTEMD is
// "require".
func underRealSystemd(t *testing.T, where string, needs ...string) {
	if testing.Short() {
		t.Skip("SKIPPED: boots a system")
	}
	missing := ""
	for _, program := range append(needs, "mmdebstrap") {
		if _, err := exec.LookPath(program); err != nil {
			missing += program + " is missing. "
		}
	}
	if os.Geteuid() != 0 {
		missing += "It needs root. "
	}
	switch {
	case missing != "" && os.Getenv("ORLA_TEST_SYSTEMD") == "require":
		t.Fatal(missing)
	case missing != "":
		t.Skipf("SKIPPED: %sSee CONTRIBUTING.md", missing)
	}
	t.Parallel()
	deb, err := debOfThis()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "scripts/systemd-test", where)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "DEB="+deb)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	verdicts := 0
	for line := range strings.Lines(string(out)) {
		verdict, rest, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if verdict != "ok" && verdict != "FAIL" {
			continue
		}
		verdicts++
		name, detail, _ := strings.Cut(strings.TrimSpace(rest), ": ")
		t.Run(name, func(t *testing.T) {
			t.Log(detail)
			if verdict == "FAIL" {
				t.Fail()
			}
		})
	}
	if verdicts == 0 {
		t.Errorf("no verdict:\n%s", out)
	}
}

// TestK1UnderSystemd: the package, its unit and Orla under a real systemd (SPEC K1, K2).
func TestK1UnderSystemd(t *testing.T) { underRealSystemd(t, "nspawn", "systemd-nspawn") }

// TestK3UnderSystemd: limits and ends of capsules on a kernel with cgroup v2
// alone (SPEC K3).
func TestK3UnderSystemd(t *testing.T) { underRealSystemd(t, "uml", "linux.uml") }
