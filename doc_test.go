package orla_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
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
