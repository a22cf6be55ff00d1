package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// Two builds can be compared, here one with itself. What is measured is not looked at.
func TestL1BuildsAreCompared(t *testing.T) {
	needs.Time(t, "builds and starts Orla")
	if _, err := cpuOf(os.Getpid()); err != nil {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	older := filepath.Join(t.TempDir(), "orla")
	if err := goBuild(t.Context(), "../../..", older, "./cmd/orla"); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-quick", "-only", "before", "-before", older}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for _, want := range []string{"older build", "capsule, 64 B, 1 ", "/bin/sh script, 4", "HTTP, session", "HTTP, client can be asked", "HTTP, stateless", "stdio"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the table does not speak of %q:\n%s", want, &stdout)
		}
	}
}

func TestAComparisonNeedsAnOlderBuild(t *testing.T) {
	if err := run(t.Context(), []string{"-only", "before"}, &bytes.Buffer{}, &bytes.Buffer{}); !errors.Is(err, errNoBefore) {
		t.Errorf("got %v, want %v", err, errNoBefore)
	}
}
