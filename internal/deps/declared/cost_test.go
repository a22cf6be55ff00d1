//go:build !race

package declared

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC S1: a requirements.txt of a stranger costs in proportion to its size, also with lines that go on, and no error has all
// of it.
func TestS1RequirementsCostInProportion(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "requirements.txt")
	costtest.Check(t, 10_000, func(n int) func() {
		file := filepath.Join(dir, fmt.Sprint(n, ".txt")) // one for each size
		put(t, file, strings.Repeat("a\\\n", n))
		return func() {
			if _, err := readRequirements(dir, file, nil); err == nil || len(err.Error()) > 1000 {
				t.Errorf("%.1000v", err)
			}
		}
	})
	put(t, file, "six==1 \\\n"+strings.Repeat(" --hash=sha256:0a \\\n", 10)+"\n"+strings.Repeat("x", longestLine+1))
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), ":13: the line has over 65536 bytes") {
		t.Errorf("%.1000v", err)
	}
	put(t, file, strings.Repeat("six\n", MostBytes/4+1))
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), "over 4194304 bytes") {
		t.Errorf("%.1000v", err)
	}
	put(t, file, strings.Repeat("six\n", MostBytes/8+1)+"-r other.txt\n")
	put(t, filepath.Join(dir, "other.txt"), strings.Repeat("six\n", MostBytes/8+1))
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), "have over 4194304 bytes") {
		t.Errorf("of two files: %.1000v", err)
	}
	put(t, file, strings.Repeat("a", 2000)+" \\")
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), "does not end") || len(err.Error()) > 1000 {
		t.Errorf("%.2000v", err)
	}
}

// SPEC S1: the comparison of a lock with what is needed costs in proportion to both.
func TestS1LocksAreComparedInProportion(t *testing.T) {
	costtest.Check(t, 500, func(n int) func() {
		var a Packages
		var needed []string
		for i := range n {
			a.Required = append(a.Required, fmt.Sprintf("package_%d==1.0 --hash=sha256:00", i))
			needed = append(needed, fmt.Sprintf("Package-%d", i))
		}
		slices.Reverse(needed)
		return func() {
			if name := a.Lacks(needed); name != "" {
				t.Errorf("it lacks %s", name)
			}
			if name := a.Lacks([]string{"other"}); name != "other" {
				t.Errorf("it lacks %q", name)
			}
		}
	})
}

// SPEC S2: Orla itself does not parse more of what a package from elsewhere asks for than it has memory for.
func TestS2WhatPackagesAskForIsBounded(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("#\n", MostBytes/2+1)
	need := func(file, lock string) Files {
		return Files{Root: dir, File: filepath.Join(dir, file), Lock: filepath.Join(dir, lock)}
	}
	put(t, filepath.Join(dir, "package.json"), "{}")
	for _, lock := range []string{"package-lock.json", "pnpm-lock.yaml"} {
		put(t, filepath.Join(dir, lock), long)
		if _, err := need("package.json", lock).Node(); err == nil || !strings.Contains(err.Error(), lock+": it has over 4194304 bytes") {
			t.Errorf("%s: %.300v", lock, err)
		}
	}
	put(t, filepath.Join(dir, "pyproject.toml"), "[project]\n"+long)
	if _, err := need("pyproject.toml", "").Python(nil); err == nil || !strings.Contains(err.Error(), "it has over 4194304 bytes") {
		t.Errorf("pyproject.toml: %.300v", err)
	}
	block := need("main.py", "")
	block.Block = []byte(long)
	if _, err := block.Python(nil); err == nil || !strings.Contains(err.Error(), "main.py: its block of inline script metadata (PEP 723) has over 4194304 bytes") {
		t.Errorf("a block: %.300v", err)
	}
}
