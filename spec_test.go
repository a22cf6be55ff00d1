package orla_test

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	defined = regexp.MustCompile(`(?m)^- \*\*([A-Z]?[0-9]+(?:\.[0-9]+)?[a-z]?)\*\*`)
	// cited finds what a comment names: "SPEC D9, D10", "SPEC-TOOLS 3.7, 5.3", also over the end of a line.
	cited   = regexp.MustCompile(`SPEC(-TOOLS)?(?:\s+(?://\s*)?)§?([A-Z]?[0-9][0-9.]*[a-z]?(?:(?:,| and| to|-)\s*(?://\s*)?(?:SPEC\s)?§?[A-Z]?[0-9][0-9.]*[a-z]?)*)`)
	number  = regexp.MustCompile(`[A-Z]?[0-9]+(?:\.[0-9]+)?[a-z]?`)
	byNames = regexp.MustCompile(`(?m)^func (?:Test|Fuzz)([A-Z][0-9]+[a-z]?)[A-Z]`)
)

// The specification has each number that code or tests name, and those that no test names are told.
func TestSpecification(t *testing.T) {
	promised := map[string]bool{}
	for _, page := range []string{"runtime", "capsules", "tools"} {
		text, err := os.ReadFile("docs/spec/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range defined.FindAllStringSubmatch(string(text), -1) {
			if promised[m[1]] {
				t.Errorf("docs/spec/%s.md has %s again", page, m[1])
			}
			promised[m[1]] = true
			chapter, _, _ := strings.Cut(m[1], ".")
			promised[chapter] = promised[chapter] || page == "tools" // "SPEC-TOOLS 7" is all of it
		}
	}
	tested := map[string]bool{}
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "node_modules" || name == ".venv" || name == "bin" || name == "dist" || strings.HasPrefix(name, ".") && name != ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || path == "spec_test.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		note := func(n, what string) {
			n = strings.TrimRight(n, ".")
			if !promised[n] {
				t.Errorf("%s names %s, which docs/spec has not", path, what)
			}
			if strings.HasSuffix(path, "_test.go") {
				tested[n] = true
			}
		}
		for _, m := range cited.FindAllStringSubmatch(string(text), -1) {
			for _, n := range number.FindAllString(m[2], -1) {
				note(n, "SPEC"+m[1]+" "+n)
			}
		}
		for _, m := range byNames.FindAllStringSubmatch(string(text), -1) {
			n := m[1]
			if tool, is := strings.CutPrefix(n, "T"); is { // T37 is 3.7 of the Tool resource
				if n = tool[:1]; len(tool) > 1 {
					n += "." + tool[1:]
				}
			}
			note(n, "a test of "+m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range slices.Sorted(maps.Keys(promised)) {
		if !tested[n] && (strings.Contains(n, ".") || n[0] > '9') {
			t.Logf("no test names %s", n)
		}
	}
}
