package orla_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is where a file holds more than one type or one step of the story.
const maxLines = 600

func TestEveryPackageHasOneComment(t *testing.T) {
	for _, p := range ours(t) {
		var documented []string
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			if parsed.Doc == nil {
				continue
			}
			documented = append(documented, file)
			if want := "Package " + parsed.Name.Name + " "; parsed.Name.Name != "main" && !strings.HasPrefix(parsed.Doc.Text(), want) {
				t.Errorf("%s: the package comment does not begin with %q", path, want)
			}
		}
		if len(p.GoFiles) > 0 && len(documented) != 1 {
			t.Errorf("%s has %d package comments (%s), want 1", p.ImportPath, len(documented), strings.Join(documented, ", "))
		}
	}
}

func TestNoFileIsTooLong(t *testing.T) {
	for _, p := range ours(t) {
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
				continue
			}
			if n := strings.Count(string(text), "\n"); n > maxLines {
				t.Errorf("%s has %d lines, more than %d: it holds two ideas", path, n, maxLines)
			}
		}
	}
}

// The map of the code names each package once, and no other.
func TestTheMapNamesEachPackageOnce(t *testing.T) {
	const page = "docs/ARCHITECTURE.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(text), "| packages at the root |")
	tables, _, _ = strings.Cut(tables, "\n## ")
	atRoot, below, _ := strings.Cut(tables, "| packages below `internal` |")
	rows := map[string]int{}
	for prefix, table := range map[string]string{"": atRoot, "internal/": below} {
		for row := range strings.Lines(table) {
			first, isRow := strings.CutPrefix(row, "| ")
			if !isRow {
				continue
			}
			first, _, _ = strings.Cut(first, " |")
			for name := range strings.SplitSeq(first, ", ") {
				if quoted, ok := strings.CutPrefix(name, "`"); ok {
					rows[prefix+strings.TrimSuffix(quoted, "`")]++
				}
			}
		}
	}
	for _, p := range ours(t) {
		name, _ := local(p.ImportPath)
		if n := rows[name]; n != 1 && len(p.GoFiles) > 0 && mapped(name) {
			t.Errorf("%s names %s %d times, want once", page, name, n)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s names %s, which is not a package", page, name)
	}
}

// The files that the map of the code names are there.
func TestTheMapNamesFilesThatExist(t *testing.T) {
	text, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("`([^` ]+\\.go)`").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(found[1]); err != nil {
			t.Errorf("there is no %s", found[1])
		}
	}
}

// mapped reports whether a package has a row of its own: examples, and what scripts and testdata run, do not.
func mapped(name string) bool {
	for _, folder := range []string{"examples", "deploy", "scripts", "testdata", "tools", "cmd"} {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return false
		}
	}
	return name != "."
}
