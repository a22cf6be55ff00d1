package orla_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// How large the parts of the product may be: a reader is to see one as a whole.
const (
	maxPackageLines = 3000
	maxFileLines    = 500
	maxStateFields  = 12 // of a struct with state of its own; a document may have more
)

// largeStates are the structs that have more, with the reason.
var largeStates = map[string]string{
	"capsule.incarnation":                    "one life of a process, with everything that ends with it",
	"capsule.status":                         "what is known of a capsule at one moment, as one value",
	"internal/app/cli/author.importer":       "one run of a command: its flags and what it has found",
	"internal/app/daemon.server":             "the parts of Orla as it serves",
	"internal/app/listen.Server":             "where Orla listens, under one lock",
	"internal/launch.Local":                  "what all processes of this machine share",
	"internal/launch.LocalProcess":           "one process from its start to its end",
	"internal/app/listen.headers":            "the state of a parser",
	"internal/call/turns.Queue":              "the places of a queue and who waits for them, under one lock",
	"internal/file/watch.Watcher":            "one goroutine's state: the channels that it selects from",
	"internal/kind/webhook.wait":             "one wait for a slow service: what it was asked, and how to hear of the end",
	"internal/launch/container.Engine":       "what is known of an engine of this machine",
	"internal/launch/container.process":      "one container from its start to its end",
	"internal/launch/kube.process":           "one Job from its start to its end",
	"internal/launch.Spec":                   "a document, with two fields for Orla alone",
	"supervisor.Catalog":                     "a document, with an index that it is read by",
	"internal/mcp/linerpc.writer":            "what is to be written on one pipe, under one lock",
	"internal/mcp/rpc.Conn":                  "the calls of one connection, under one lock",
	"internal/observe/logging.output":        "what is to be written to the log, under one lock",
	"internal/wasm.Runtime":                  "the budgets that all modules share, and what is compiled",
	"internal/wasm/wasmfuel.module":          "the sections of a module",
	"internal/wasm/wasmfuel.scanner":         "the state of a parser",
	"mcpbridge.Bridge":                       "the parts of the bridge",
	"mcpbridge.Request":                      "one request from its reading to its answer",
	"mcpbridge/transport/stdio.Conn":         "one client: what it asked, what it is told, and how it ends, under one lock",
	"mcpbridge/transport/httpfront.response": "one answer from its head to its end, and the stream that may begin before",
	"supervisor.Supervisor":                  "the parts of the supervisor",
}

// The product keeps to the sizes, or says why not.
func TestSizes(t *testing.T) {
	lines, large := map[string]int{}, map[string]int{}
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (file == "internal/testing" || file == "examples" || file == "tools" || d.Name() == "testdata" || d.Name() == "templates" || d.Name() == "node_modules" || file != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		n := bytes.Count(text, []byte("\n"))
		if lines[path.Dir(file)] += n; n > maxFileLines {
			t.Errorf("%s has %d lines; %d are enough", file, n, maxFileLines)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if of, ok := spec.Type.(*ast.StructType); ok && fields(of) > maxStateFields {
					large[path.Dir(file)+"."+spec.Name.Name] = fields(of)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		if lines[dir] > maxPackageLines {
			t.Errorf("%s has %d lines; %d are enough", dir, lines[dir], maxPackageLines)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(large)) {
		if largeStates[name] == "" {
			t.Errorf("%s has %d fields; %d are enough, or it needs a reason in largeStates", name, large[name], maxStateFields)
		}
	}
	for name := range largeStates {
		if large[name] == 0 {
			t.Errorf("largeStates has %s, which is not large", name)
		}
	}
	if len(lines) < 50 {
		t.Errorf("only %d packages were found", len(lines))
	}
}

// fields counts the fields of a struct; 0 if it has no state, which all can see.
func fields(of *ast.StructType) (n int) {
	state := false
	for _, f := range of.Fields.List {
		n += max(1, len(f.Names))
		for _, name := range f.Names {
			state = state || !name.IsExported()
		}
	}
	if !state {
		return 0
	}
	return n
}
