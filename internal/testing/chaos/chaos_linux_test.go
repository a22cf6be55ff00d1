package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC D1, D2, E1, F3, G3, H2: two short storms. "make chaos" is for long ones.
func TestShortStorms(t *testing.T) {
	needs.Time(t, "builds Orla, and takes ten seconds")
	if out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		needs.Missing(t, "no namespaces of its own for who runs the tests: %v: %s", err, out)
	}
	dir := t.TempDir()
	build := func(name, what string, flags ...string) string {
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", slices.Concat([]string{"build", "-ldflags=-s -w", "-o", path}, flags, []string{what})...)
		if !slices.Contains(flags, "-race") {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build has it, which may have compiled it
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return path
	}
	// A race that Orla finds in itself is not a line of its log, and so it is a violation.
	flags := []string{"-trimpath"}
	if detectsRaces {
		flags = testkit.BuildFlags() // -race, as these tests are compiled
	}
	chaos, orla := build("chaos", ".", "-trimpath"), build("orla", "../../../cmd/orla", flags...)
	runs, err := os.MkdirTemp("", "orla-chaos-") //nolint:usetesting // its logs stay when it fails
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(chaos, "-orla", orla, "-dir", runs, "-seed", "1", "-for", "5s", "-storm", "2s").CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%v; its logs stay in %s", err, runs)
	}
	if err := os.RemoveAll(runs); err != nil {
		t.Error(err)
	}
}
