//go:build !race

package deps

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/deps/declared"
)

// SPEC S1, R2: what a file declares is looked for at each change, whoever has made it. A script may be large all the same.
func TestS1WhatToolsAskForIsBounded(t *testing.T) {
	long := strings.Repeat("# x\n", declared.MostBytes/4+1)
	half := "acme\n" + long[:declared.MostBytes/2]
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
