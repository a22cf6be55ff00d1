package program

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC I2: the keys of the log are listed in docs/LOG.md, each one that the
// sources have; those of a call in its line.
func TestI2ThePageListsEveryKey(t *testing.T) {
	t.Parallel()
	needs.Time(t, "loads all packages")
	page := testkit.ReadFile(t, filepath.Join("..", "..", "..", "docs", "LOG.md"))
	keys := loggedKeys(t, filepath.Join("..", "..", ".."))
	if len(keys) < 50 {
		t.Fatalf("only %d keys were found in the sources", len(keys))
	}
	_, ofCall, _ := strings.Cut(page, "\n| `call` |")
	ofCall, _, _ = strings.Cut(ofCall, "\n")
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("%s: docs/LOG.md does not have the key %s", keys[key][0], key)
		}
		for _, at := range keys[key] {
			if strings.HasSuffix(at.Filename, "mcpbridge/calllog.go") && !strings.Contains(ofCall, "`"+key+"`") {
				t.Errorf("%s: the line of a call in docs/LOG.md does not have the key %s", at, key)
			}
		}
	}
}

// loggedKeys finds the keys of all log lines in the sources of the product, and
// their places.
func loggedKeys(t *testing.T, root string) map[string][]token.Position {
	t.Helper()
	keys := map[string][]token.Position{}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "bench" || name == "tools" || name == "capsuletest" || len(name) > 2 && name[0] == '.'):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				for _, key := range keysIn(call) {
					if text, err := strconv.Unquote(key.Value); err == nil {
						keys[text] = append(keys[text], files.Position(key.Pos()))
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// keysIn returns the keys that a call names: slog.Int("key", …), or the pairs
// after the message of a method such as Info.
func keysIn(call *ast.CallExpr) []*ast.BasicLit {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	pairs := call.Args
	of, _ := method.X.(*ast.Ident)
	switch {
	case of != nil && of.Name == "http": // http.Error
		return nil
	case of != nil && of.Name == "slog" && slices.Contains([]string{"String", "Int", "Int64", "Float64", "Bool", "Any", "Duration"}, method.Sel.Name):
		pairs = pairs[:1]
	case slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) && len(pairs) > 1:
		pairs = pairs[1:]
	case method.Sel.Name == "Log" && len(pairs) > 3:
		pairs = pairs[3:]
	default:
		return nil
	}
	var keys []*ast.BasicLit
	for i := 0; i < len(pairs); i++ {
		if key, ok := pairs[i].(*ast.BasicLit); ok && key.Kind == token.STRING {
			keys = append(keys, key)
			i++ // its value
		}
	}
	return keys
}
