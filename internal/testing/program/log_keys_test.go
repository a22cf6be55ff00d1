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
			var found []*ast.BasicLit
			switch n := n.(type) {
			case *ast.CallExpr:
				found = firstOfPairs(loggedBy(n))
			case *ast.FuncDecl:
				found = keysOfLists(n)
			}
			for _, key := range found {
				if text, err := strconv.Unquote(key.Value); err == nil {
					keys[text] = append(keys[text], files.Position(key.Pos()))
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

// loggedBy returns the arguments of a call that begin with keys: of slog.Int("key", …), or the pairs
// after the message of a method such as Info.
func loggedBy(call *ast.CallExpr) []ast.Expr {
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
		return pairs[:1]
	case slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, method.Sel.Name) && len(pairs) > 1:
		return pairs[1:]
	case method.Sel.Name == "Log" && len(pairs) > 3:
		return pairs[3:]
	}
	return nil
}

// keysOfLists returns the keys in lists that a function makes and logs: about := []any{"key", …}, and
// append(about, "key", …), for Info("message", about...).
func keysOfLists(function *ast.FuncDecl) (keys []*ast.BasicLit) {
	lists := map[string]bool{}
	ast.Inspect(function, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && call.Ellipsis.IsValid() {
			if pairs := loggedBy(call); len(pairs) > 0 {
				if list, ok := pairs[len(pairs)-1].(*ast.Ident); ok {
					lists[list.Name] = true
				}
			}
		}
		return true
	})
	ast.Inspect(function, func(n ast.Node) bool {
		set, ok := n.(*ast.AssignStmt)
		if !ok || len(set.Lhs) != 1 || len(set.Rhs) != 1 {
			return true
		}
		if list, ok := set.Lhs[0].(*ast.Ident); !ok || !lists[list.Name] {
			return true
		}
		switch made := set.Rhs[0].(type) {
		case *ast.CompositeLit:
			keys = append(keys, firstOfPairs(made.Elts)...)
		case *ast.CallExpr: // append
			keys = append(keys, firstOfPairs(made.Args[min(1, len(made.Args)):])...)
		}
		return true
	})
	return keys
}

// firstOfPairs returns the literal keys of a list of keys and values.
func firstOfPairs(pairs []ast.Expr) (keys []*ast.BasicLit) {
	for i := 0; i < len(pairs); i++ {
		if key, ok := pairs[i].(*ast.BasicLit); ok && key.Kind == token.STRING {
			keys = append(keys, key)
			i++ // its value
		}
	}
	return keys
}
