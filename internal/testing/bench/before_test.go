package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// A call that takes more CPU than it may fails the run, if it does in three comparisons.
func TestL1ASlowerBuildFails(t *testing.T) {
	for _, c := range []struct {
		most  float64
		once  bool // only in the first comparison
		fails bool
	}{{0, false, false}, {1.10, false, true}, {2.10, false, false}, {1.10, true, false}} {
		b, opened := &bench{compared: compared{most: c.most}}, 0
		builds := pairs[*fake]{2, func(_ context.Context, which int) (*fake, func(), error) {
			opened++
			each := time.Millisecond
			if which == 1 && (!c.once || opened <= 4) {
				each *= 2
			}
			return &fake{each: each}, func() {}, nil
		}}
		var rows table
		if err := addBuilds(t.Context(), b, &rows, "stdio", builds, fakeJobs[:1]); err != nil {
			t.Fatal(err)
		}
		if got := len(b.slower) == 1; got != c.fails || len(rows.rows) != 1 {
			t.Errorf("above %.2f: fails %t, want %t; %v", c.most, got, c.fails, b.slower)
		}
		if row := strings.Join(rows.rows[0], " "); c.once && !strings.Contains(row, "1.00× 1.000 to 1.000") {
			t.Errorf("the pairs of another comparison are shown: %s", row)
		}
		if c.fails && !strings.Contains(slowerError(b.slower).Error(), "a call over stdio: 2.00") {
			t.Errorf("the error is %v", slowerError(b.slower))
		}
	}
}

func TestAComparisonNeedsAnOlderBuild(t *testing.T) {
	if err := run(t.Context(), []string{"-only", "before"}, &bytes.Buffer{}, &bytes.Buffer{}); !errors.Is(err, errNoBefore) {
		t.Errorf("got %v, want %v", err, errNoBefore)
	}
}
