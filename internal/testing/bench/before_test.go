package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
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
	spent, looks, once := []time.Duration{0, 0}, 0, false
	each := []time.Duration{time.Millisecond, 2 * time.Millisecond}
	subjects := make([]subject, 2)
	for i := range subjects {
		subjects[i] = subject{
			name: []string{"older", "now"}[i],
			load: func(n, _ int) ([]time.Duration, error) {
				spent[i] += time.Duration(n) * each[i]
				return slices.Repeat([]time.Duration{time.Microsecond}, n), nil
			},
			cpu: func() (cpu, error) {
				if looks++; once && looks > 2*len(each) { // after the first comparison
					each[1] = each[0]
				}
				return cpu{own: spent[i]}, nil
			},
		}
	}
	for _, c := range []struct {
		most  float64
		once  bool // only in the first comparison
		fails bool
	}{{0, false, false}, {1.10, false, true}, {2.10, false, false}, {1.10, true, false}} {
		looks, once, each[1] = 0, c.once, 2*time.Millisecond
		b := &bench{compared: compared{most: c.most}}
		var rows table
		if err := b.addBuilds(t.Context(), &rows, "a call", "stdio", time.Millisecond, 1, subjects); err != nil {
			t.Fatal(err)
		}
		if got := len(b.slower) == 1; got != c.fails || len(rows.rows) != 1 {
			t.Errorf("above %.2f: fails %t, want %t; %v", c.most, got, c.fails, b.slower)
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
