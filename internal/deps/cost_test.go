//go:build !race

package deps

import (
	"fmt"
	"maps"
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
	put(t, file, strings.Repeat("six\n", mostAsked/4+1))
	if _, err := readRequirements(dir, file, nil); err == nil || !strings.Contains(err.Error(), "over 4194304 bytes") {
		t.Errorf("%.1000v", err)
	}
	put(t, file, strings.Repeat("six\n", mostAsked/8+1)+"-r other.txt\n")
	put(t, filepath.Join(dir, "other.txt"), strings.Repeat("six\n", mostAsked/8+1))
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
		var a asked
		var needed []string
		for i := range n {
			a.required = append(a.required, fmt.Sprintf("package_%d==1.0 --hash=sha256:00", i))
			needed = append(needed, fmt.Sprintf("Package-%d", i))
		}
		slices.Reverse(needed)
		return func() {
			if name := a.lacks(needed); name != "" {
				t.Errorf("it lacks %s", name)
			}
			if name := a.lacks([]string{"other"}); name != "other" {
				t.Errorf("it lacks %q", name)
			}
		}
	})
}

// SPEC S2: Orla itself does not parse more of what a package from elsewhere asks for than it has memory for.
func TestS2WhatPackagesAskForIsBounded(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("#\n", mostAsked/2+1)
	need := func(file, lock string) Need {
		return Need{source: Source{Folders: []string{dir}}, File: filepath.Join(dir, file), Lock: filepath.Join(dir, lock)}
	}
	put(t, filepath.Join(dir, "package.json"), "{}")
	for _, lock := range []string{"package-lock.json", "pnpm-lock.yaml"} {
		put(t, filepath.Join(dir, lock), long)
		if _, err := need("package.json", lock).carefulFiles(); err == nil || !strings.Contains(err.Error(), lock+": it has over 4194304 bytes") {
			t.Errorf("%s: %.300v", lock, err)
		}
	}
	put(t, filepath.Join(dir, "pyproject.toml"), "[project]\n"+long)
	if _, _, err := need("pyproject.toml", "").declared(nil); err == nil || !strings.Contains(err.Error(), "it has over 4194304 bytes") {
		t.Errorf("pyproject.toml: %.300v", err)
	}
	put(t, filepath.Join(dir, "package.json"), `{"description": "`+long+`"}`)
	if _, err := new(Files).Detect(Source{Script: filepath.Join(dir, "main.js"), Language: Node, Interpreter: "/bin/sh", Folders: []string{dir}}); err == nil || !strings.Contains(err.Error(), "package.json has over 4194304 bytes") {
		t.Errorf("package.json: %.300v", err)
	}
}

// SPEC S1, R2: what a file declares is looked for at each change, whoever has made it. A script may be large all the same.
func TestS1WhatToolsAskForIsBounded(t *testing.T) {
	long := strings.Repeat("# x\n", mostAsked/4+1)
	half := "acme\n" + long[:mostAsked/2]
	for what, c := range map[string]struct {
		script string
		files  map[string]string
		want   string
	}{
		"a project":           {"", map[string]string{"pyproject.toml": "[project]\n" + long}, "pyproject.toml has over 4194304 bytes"},
		"requirements":        {"", map[string]string{"requirements.txt": long}, "requirements.txt has over 4194304 bytes"},
		"what they include":   {"", map[string]string{"requirements.txt": "-r more.txt\n" + half, "more.txt": half}, "or has over 4194304 bytes with them"},
		"many that they name": {"", map[string]string{"requirements.txt": many(101, "-r more%d.txt\n")}, "includes more than 100 files"},
		"a few that they name": {
			"", map[string]string{"requirements.txt": "-r more.txt\n-r more.txt\n-r other.txt\n" + half, "more.txt": "-r other.txt\n", "other.txt": "-r more.txt"}, "",
		},
		"a block":             {"# /// script\n# dependencies = [\"acme\"]\n" + strings.ReplaceAll(long, "x", "xxxx") + "# ///\n", nil, "main: its block of inline script metadata (PEP 723) has over 4194304 bytes"},
		"a script":            {"import x\n" + long, nil, ""},
		"a project beside it": {inline, map[string]string{"pyproject.toml": "[project]\n" + long}, ""},
	} {
		files := map[string]string{}
		maps.Copy(files, c.files)
		if _, err := new(Files).Detect(source(t, Python, c.script, files)); err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %.300v; want %q", what, err, c.want)
		}
	}
}

// many is a text so many times, each with its number.
func many(n int, text string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, text, i)
	}
	return all.String()
}
