package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// moduleOfThePage writes the module's source and its resource, as docs/TOOLS.md
// shows them, into a folder. It returns the section.
func moduleOfThePage(t *testing.T, dir string) string {
	t.Helper()
	_, text, _ := strings.Cut(section(t, "docs/TOOLS.md", "Types"), "\n### wasm\n")
	blocks := fence.FindAllStringSubmatch(text, -1)
	if len(blocks) != 2 || blocks[0][1] != "yaml" || blocks[1][1] != "go" {
		t.Fatalf("%d blocks of code; want a resource and a module", len(blocks))
	}
	testkit.WriteTool(t, dir, "tool.go", blocks[1][2])
	// A compiler takes ten times as long with the race detector, which looks at Orla here.
	testkit.WriteTool(t, dir, "tools/echo.yaml", strings.Replace(blocks[0][2], "timeout: 5s", "timeout: 2m", 1))
	if err := os.Chmod(filepath.Join(dir, "tools", "echo.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	return text
}

// SPEC-TOOLS 3.7: the page's module with the page's resource, as docs/TOOLS.md shows it.
func TestT37TheDocumentedModule(t *testing.T) {
	t.Parallel()
	needs.Time(t, "compiles a module")
	needs.Programs(t, "go")
	dir := t.TempDir()
	if printed := try(t, dir, moduleOfThePage(t, dir)); printed != 1 {
		t.Errorf("%d commands print something", printed)
	}
	if got := shell(t, dir, "orla validate"); !strings.Contains(got, "1 tool in order, 0 faults") {
		t.Errorf("orla validate: %s", got)
	}
	o := serveOrla(t, filepath.Join(dir, "tools"))
	got, err := o.call("wasm-echo", `{"text":"<hello>"}`)
	if err != nil || got.Result == nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	if r := got.Result; r.IsError || r.Content[0].Text != `{"text":"<hello>"}` || r.Meta["fuel_used"] == nil || r.Meta["memory_peak_bytes"] == nil {
		t.Errorf("got %+v", r)
	}
	// What is saved in the module's place is the next call's.
	module := filepath.Join(dir, "tools", "path", "to", "echo.wasm")
	if err := os.WriteFile(module, []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = o.call("wasm-echo", `{}`)
	if err != nil || got.Result == nil || got.Result.Meta["tool_code"] != "runtime_policy_invalid" || !strings.Contains(got.Result.Content[0].Text, "no function at all") {
		t.Errorf("got %+v, %v", got.Result, err)
	}
}
