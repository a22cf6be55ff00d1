package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// units is where the files for systemd are.
const units = "../../../deploy/systemd"

// exposure is what `systemd-analyze security` may say of the service at most,
// out of 100. docs/SYSTEMD.md lists what makes up the rest.
const exposure = 28

// analyze runs systemd-analyze, and returns what it prints on each stream.
func analyze(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	needs.Programs(t, "systemd-analyze")
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "LC_ALL=C.UTF-8")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its exit code says nothing: it is 0 for keys that it does not know
	return stdout.String(), stderr.String()
}

// copied copies a unit into dir, for a machine that has no orla.
func copied(t *testing.T, dir, unit string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(units, unit))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.Base(unit))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/usr/bin/orla", "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestK1UnitsAreSound: systemd understands every line of the units (SPEC K1).
func TestK1UnitsAreSound(t *testing.T) {
	needs.Time(t, "starts systemd-analyze")
	t.Parallel()
	version, _ := analyze(t, "--version")
	fields := strings.Fields(version)
	if len(fields) < 2 {
		t.Fatalf("systemd-analyze --version: %q", version)
	}
	release, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	service, socket := copied(t, filepath.Join(dir, "plain"), "orla.service"), copied(t, filepath.Join(dir, "plain"), "orla.socket")
	newer := copied(t, filepath.Join(dir, "newer"), "orla.service")
	copied(t, newer+".d", "notify-reload.conf")
	for name, args := range map[string][]string{
		"service":       {"verify", "--man=no", service, socket},
		"notify-reload": {"verify", "--man=no", newer},
		"user":          {"verify", "--man=no", "--user", copied(t, filepath.Join(dir, "user"), "user/orla.service")},
	} {
		_, errs := analyze(t, args...)
		for line := range strings.Lines(errs) {
			if release < 253 && strings.Contains(line, "notify-reload.conf") && strings.Contains(line, "ignoring: notify-reload") {
				continue // it is for later ones
			}
			t.Errorf("%s: %s", name, line)
		}
	}
}

// TestK1UnitsBoundMemory: Orla and its tools cannot take all memory of the machine.
func TestK1UnitsBoundMemory(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"orla.service", "user/orla.service"} {
		text, err := os.ReadFile(filepath.Join(units, unit))
		if err != nil {
			t.Fatal(err)
		}
		percent := func(key string) int {
			value := regexp.MustCompile(`(?m)^` + key + `=(\d+)%$`).FindSubmatch(text)
			if value == nil {
				t.Fatalf("%s has no %s= in percent", unit, key)
			}
			n, err := strconv.Atoi(string(value[1]))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if high, most := percent("MemoryHigh"), percent("MemoryMax"); high >= most || most > 90 {
			t.Errorf("%s: MemoryHigh=%d%%, MemoryMax=%d%%", unit, high, most)
		}
	}
}

// TestK1ServiceStaysHardened: the service is as well guarded as it was.
func TestK1ServiceStaysHardened(t *testing.T) {
	t.Parallel()
	out, errs := analyze(t, "security", "--offline=true", "--no-pager", copied(t, t.TempDir(), "orla.service"))
	level := regexp.MustCompile(`Overall exposure level for orla.service: ([0-9.]+)`).FindStringSubmatch(out)
	if level == nil {
		t.Fatalf("systemd-analyze security:\n%s\n%s", out, errs)
	}
	got, err := strconv.ParseFloat(level[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case 10*got > exposure+0.5:
		t.Errorf("exposure %v is above %v:\n%s", got, exposure/10.0, out)
	case 10*got < exposure-0.5:
		t.Errorf("exposure is %v: lower what this test allows", got)
	}
}
