package package_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// underRealSystemd runs scripts/systemd-test, and makes a test of each verdict.
// Where the tools for it are missing it is skipped, unless ORLA_TEST_SYSTEMD is
// "require".
func underRealSystemd(t *testing.T, where string, programs ...string) {
	needs.Time(t, "boots a system")
	missing := ""
	for _, program := range append(programs, "mmdebstrap") {
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
	deb, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "scripts/systemd-test", where)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "DEB="+deb)
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
