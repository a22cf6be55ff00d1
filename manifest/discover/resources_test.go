package discover_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
	"github.com/orla-project/orla/manifest/resource"
)

// SPEC-TOOLS 1.1: a file of any name, anywhere in the folder but in packages.
// What it stands among stays data.
func TestT11ResourcesAreFoundAmongData(t *testing.T) {
	r := search(t, func() {
		manifesttest.Write(t, "tools", "a.yml", fmt.Sprintf(manifesttest.Resource, "a"), 0o644)
		manifesttest.Write(t, "tools", "deep/er/b.json", `{"kind":"Tool","metadata":{"name":"b"},"spec":{"endpoint":"https://b"},"apiVersion":"orloj.dev/v1"}`, 0o644)
		manifesttest.Write(t, "tools", "run.yaml", fmt.Sprintf(manifesttest.Resource, "run"), 0o755)
		manifesttest.Write(t, "tools", "side.tool.yaml", fmt.Sprintf(manifesttest.Resource, "side"), 0o644)
		manifesttest.Write(t, "tools", "late.yaml", strings.Repeat("# long\n", 9000)+fmt.Sprintf(manifesttest.Resource, "late"), 0o644)
		manifesttest.Link(t, "deep/er/b.json", "tools/again.json")
		manifesttest.WritePackage(t, "tools/pack", "pack", "1.0.0")
		for name, text := range map[string]string{
			"pack/res.yaml": fmt.Sprintf(manifesttest.Resource, "x"), ".hidden.yaml": fmt.Sprintf(manifesttest.Resource, "x"), "node_modules/x.yaml": fmt.Sprintf(manifesttest.Resource, "x"),
			"old.yaml~": fmt.Sprintf(manifesttest.Resource, "x"), "res.txt": fmt.Sprintf(manifesttest.Resource, "x"),
			"too-late.yaml":  strings.Repeat("# too long\n", 9000) + fmt.Sprintf(manifesttest.Resource, "x"),
			"openapi.yaml":   "components:\n  kind: Tool\n  x: {kind: Secret}\n",
			"template.yaml":  "{{- if .x }}\nfoo: [\n  kind: Tool\n",
			"k8s.yaml":       "apiVersion: v1\nkind: ConfigMap\n---\napiVersion: apps/v1\nkind: Deployment\nspec: {x: {kind: Secret}}\n",
			"list.json":      `[{"apiVersion":"orloj.dev/v1","kind":"Tool"}]`,
			"nested.json":    `{"items":[{"apiVersion":"orloj.dev/v1","kind":"Tool"}]}`,
			"text.yaml":      "apiVersion orloj.dev/v1 is what resources say",
			"doc.yaml":       "about: orloj.dev/v1\n",
			"large.json":     `{"kind": "Tool", "x": "` + strings.Repeat("x", 1<<20) + `"}`,
			"toolbox.yaml":   "kind: Toolbox\n",
			"other/mcp.json": `{"mcpServers": {}}`,
		} {
			manifesttest.Write(t, "tools", name, text, 0o644)
		}
		manifesttest.Write(t, "tools", "huge.yaml", fmt.Sprintf(manifesttest.Resource, "huge")+strings.Repeat("# x\n", 1<<18), 0o644)
	})
	manifesttest.Expect(t, r, []string{"a", "b", "late", "pack", "run", "side"}, []string{
		"error tools/huge.yaml: tools/huge.yaml:1:1: the file has 1048673 bytes, more than the 1048576 allowed",
	})
}

// SPEC-TOOLS 8.3: rules in a list at the top of a file, and in a file without an extension, are not read: whoever wrote them is told.
// They deny nothing, since tools keep lists of what their callers write.
func TestT83RulesThatNothingReadsAreWarnedOf(t *testing.T) {
	const rule = "apiVersion: orloj.dev/v1\n%[1]skind: AgentPolicy\n%[1]smetadata: {name: a}\n%[1]sspec: {apply_mode: global, blocked_tools: ['*']}\n"
	list := "- " + fmt.Sprintf(rule, "  ")
	const ignored = "is not read as a rule, and forbids nothing, since it is an item of a list: write each rule as a document of its own, with --- between two of them"
	r := search(t, func() {
		for name, text := range map[string]string{
			"a.yaml": "# ours\n- {text: hello}\n" + list + list, "b.json": `[{"apiVersion": "orloj.dev/v1", "kind": "ToolPermission"}]`,
			"c.yaml": fmt.Sprintf(manifesttest.Resource, "c") + "---\n" + list, "rules": fmt.Sprintf(rule, ""),
			"data.yaml": "- kind: AgentPolicy\n- {apiVersion: orloj.dev/v1, kind: Tool}\n- [apiVersion, kind]\n", "data.json": `[{"text": "orloj.dev"}, 1, null]`,
			"README": "A rule begins with apiVersion: orloj.dev/v1, and kind: AgentPolicy.\n", "rules.off": fmt.Sprintf(rule, ""),
		} {
			manifesttest.Write(t, "tools", name, text, 0o644)
		}
	})
	manifesttest.Expect(t, r, []string{"c"}, []string{
		"warning tools/a.yaml: tools/a.yaml:3:3: " + ignored, "warning tools/b.json: tools/b.json:1:2: " + ignored, "warning tools/c.yaml: tools/c.yaml:6:3: " + ignored,
		"warning tools/rules: is not read, so that its rules forbid nothing: call it rules.yaml",
	})
	for file, want := range map[string]bool{"tools/a.yaml": false, "tools/c.yaml": false, "tools/data.yaml": false} { // what had rules has none now, and nobody may have meant that
		if got := resource.Declares(file); got != want {
			t.Errorf("%s declares resources: %v", file, got)
		}
	}
}

// SPEC-TOOLS 1.1: of resources, a document that cannot be parsed is at fault
// even where it does not say what it is; that of somebody else is not ours.
func TestT11ABrokenDocumentAmongResourcesIsAtFault(t *testing.T) {
	const tool = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: t}\nspec: {endpoint: 'http://127.0.0.1:1/x'}\n---\n"
	for broken, want := range map[string]string{
		"spec: [}\n a\n": "t.yaml:6:", // the tool that it was is not served
		"apiVersion: v1\nkind: ConfigMap\ndata: [}\n a\n": "",
	} {
		dir := t.TempDir()
		manifesttest.Write(t, dir, "t.yaml", tool+broken, 0o644)
		r := discover.Validate(dir)
		if got := strings.Join(manifesttest.Texts(r), "\n"); len(r.Tools) != 1 || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %d tools and %q; want one and %q", broken, len(r.Tools), got, want)
		}
	}
}

// SPEC-TOOLS 1.1: how many documents a file may have is bounded, and the first ones are served.
func TestT11DocumentsAreBounded(t *testing.T) {
	r := search(t, func() {
		var text strings.Builder
		fmt.Fprintf(&text, manifesttest.Resource, "first")
		for range 999 {
			text.WriteString("---\n")
		}
		text.WriteString("---\n" + fmt.Sprintf(manifesttest.Resource, "last"))
		manifesttest.Write(t, "tools", "many.yaml", text.String(), 0o644)
	})
	manifesttest.Expect(t, r, []string{"first"}, []string{
		"error tools/many.yaml: tools/many.yaml:1004:1: a file may hold 1000 documents; this one and those below it are not read",
	})
}

// A file whose documents are all at fault does not fill the log.
func TestT11FaultyDocumentsAreListedUpToANumber(t *testing.T) {
	r := search(t, func() {
		bad := strings.Repeat("kind: Tool\nx: [\n---\n", 150)
		manifesttest.Write(t, "tools", "bad.yaml", bad+fmt.Sprintf(manifesttest.Resource, "last"), 0o644)
	})
	if n := len(r.Problems); n != 101 || !slices.Equal(manifesttest.Names(r), []string{"last"}) {
		t.Fatalf("%d problems, tools %q", n, manifesttest.Names(r))
	}
	if got, want := r.Problems[100].Err.Error(), "tools/bad.yaml:1:1: 50 more documents of this file are at fault"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// SPEC A4: one name is one tool of any kind; the project's hide the user's, secrets too.
func TestT11ConflictsOfAllKinds(t *testing.T) {
	t.Chdir(t.TempDir())
	manifesttest.Write(t, "tools", "a.yaml", fmt.Sprintf(manifesttest.Resource, "same")+"---\n"+fmt.Sprintf(secretFile, "same", "project"), 0o600)
	manifesttest.Write(t, "tools", "b/same.sh", manifesttest.Script, 0o755)
	manifesttest.Write(t, "tools", "c.yaml", fmt.Sprintf(secretFile, "same", "another"), 0o600)
	manifesttest.Write(t, "home", "z.yaml", fmt.Sprintf(manifesttest.Resource, "same")+"---\n"+fmt.Sprintf(secretFile, "same", "user")+"---\n"+fmt.Sprintf(secretFile, "mine", "user"), 0o600)
	r := discover.Tools(discover.Options{ToolsDir: "tools", UserDir: "home"})
	manifesttest.Expect(t, r, []string{"same"}, []string{
		`error tools/b/same.sh: conflict: the tool "same" is served from tools/a.yaml:3; rename one of the two`,
		`error tools/c.yaml: tools/c.yaml:3:18: metadata.name: conflict: the secret "same" of namespace default is that of tools/a.yaml:8; rename one of the two`,
	})
	want := map[string]string{"default/same:value": "project", "default/mine:value": "user"}
	if got := manifesttest.SecretValues(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// SPEC-TOOLS 3.5: the server of a tool is looked for among all that is found.
func TestT35ToolsOfServersThatAreNotThereAreWarnedOf(t *testing.T) {
	const server, tool = "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: files}\nspec: {transport: http, endpoint: https://a}\n",
		"apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: reader}\nspec: {type: mcp, mcp_server_ref: files, mcp_tool_name: read}\n"
	for name, c := range map[string]struct{ project, user string }{
		"in the same folder": {server + "---\n" + tool, ""},
		"in the user's":      {tool, server},
		"nowhere":            {tool, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			manifesttest.Write(t, "tools", "a.yaml", c.project, 0o644)
			manifesttest.Write(t, "home", "b.yaml", c.user, 0o644)
			r := discover.Tools(discover.Options{ToolsDir: "tools", UserDir: "home"})
			if warned := len(r.Problems) == 1; warned != (name == "nowhere") || len(r.Tools) == 0 {
				t.Errorf("got %q and %q", manifesttest.Names(r), manifesttest.Texts(r))
			}
			if r := discover.Validate("tools/a.yaml"); len(r.Problems) > 0 {
				t.Errorf("the file alone: %q", manifesttest.Texts(r))
			}
		})
	}
}

// SPEC-TOOLS 3.5: what an McpServer runs stands beside its file, and is not a tool itself.
func TestT35TheProgramOfAServerIsNoTool(t *testing.T) {
	const server = "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: %s}\nspec: {transport: stdio, command: %s, args: [-u, %s]}\n"
	r := search(t, func() {
		manifesttest.Write(t, "tools", "a/server.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "a/res.yaml", fmt.Sprintf(server, "one", "./server.sh", "x"), 0o644)
		manifesttest.Write(t, "tools", "d/faulty.sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "d/res.yaml", fmt.Sprintf(server, "four", "./faulty.sh", "x")+"status: x\n", 0o644)
		manifesttest.Write(t, "tools", "b/res.yaml", fmt.Sprintf(server, "two", "sh", "main.py")+"---\n"+fmt.Sprintf(server, "three", "sh", "lib/linked.py"), 0o644)
		manifesttest.Write(t, "tools", "b/main.py", manifesttest.Script, 0o644)
		manifesttest.Write(t, "tools", "b/lib/real.py", manifesttest.Script, 0o755)
		manifesttest.Link(t, "real.py", "tools/b/lib/linked.py")
		manifesttest.Write(t, "tools", "b/other.py", manifesttest.Script, 0o644)
		manifesttest.Write(t, "tools", "c/main.sh", manifesttest.Script, 0o755)
	})
	manifesttest.Expect(t, r, []string{"main", "one", "three", "two"}, []string{
		"warning tools/b/other.py: is not executable: chmod +x tools/b/other.py",
		"error tools/d/res.yaml: tools/d/res.yaml:5:1: status: unknown key",
	})
}

// SPEC-TOOLS 3.6: a command that stands beside its file is not a tool itself, and what
// an isolated server finds elsewhere hides none.
func TestT36TheCommandOfAToolIsNoTool(t *testing.T) {
	const cli = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: %s}\nspec: {type: cli, cli: {command: %s%s}, runtime: {isolation_mode: %s}}\n"
	r := search(t, func() {
		manifesttest.Write(t, "tools", "a/bin/count", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "a/other", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "a/one.yaml", fmt.Sprintf(cli, "one", "./bin/count", "", "sandboxed"), 0o644)
		manifesttest.Write(t, "tools", "b/sh", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "b/two.yaml", fmt.Sprintf(cli, "two", "sh", "", "none"), 0o644)
		manifesttest.Write(t, "tools", "c/npx", manifesttest.Script, 0o755)
		manifesttest.Write(t, "tools", "c/three.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: three}\n"+
			"spec: {transport: stdio, command: npx, default_tool_runtime: {isolation_mode: container}}\n", 0o644)
	})
	manifesttest.Expect(t, r, []string{"npx", "one", "other", "sh", "three", "two"}, nil)
}

// SPEC-TOOLS 1.1: a folder of large data costs the first bytes of each file: of
// a terabyte nobody would see the end.
func TestT11LargeDataCostsItsFirstBytes(t *testing.T) {
	r := search(t, func() {
		for i := range 40 {
			name := fmt.Sprintf("tools/data%d%s", i, []string{".json", ".yaml", ".yml"}[i%3])
			text := []string{"{", `{"x": {"kind": "Tool"}`, "kind: Tool\n", "just: data\n"}[i%4]
			manifesttest.Write(t, ".", name, text, 0o644)
			if err := os.Truncate(name, 1<<40); err != nil {
				t.Skipf("no sparse files here: %v", err)
			}
		}
		manifesttest.Write(t, "tools", "res.yaml", fmt.Sprintf(manifesttest.Resource, "res"), 0o644)
		manifesttest.Write(t, "tools", "ours.yaml", fmt.Sprintf(manifesttest.Resource, "ours"), 0o644)
		if err := os.Truncate("tools/ours.yaml", 1<<40); err != nil {
			t.Fatal(err)
		}
	})
	manifesttest.Expect(t, r, []string{"res"}, []string{"error tools/ours.yaml: tools/ours.yaml:1:1: the file has 1099511627776 bytes, more than the 1048576 allowed" + manifesttest.MayBeRule})
}

// SPEC-TOOLS 3.7: a module is the tool that a resource makes of it, and no
// program beside, whatever mode its compiler gave it.
func TestT37AModuleIsNoProgram(t *testing.T) {
	dir := manifesttest.RealPath(t, t.TempDir())
	const resource = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: echo}\nspec: {type: wasm, wasm: {module: bin/echo.wasm}}\n"
	manifesttest.Write(t, dir, "echo.yaml", resource, 0o644)
	manifesttest.Write(t, dir, "bin/echo.wasm", "\x00asm\x01\x00\x00\x00", 0o755)
	manifesttest.Write(t, dir, "bin/echo", "\x00asm\x01\x00\x00\x00", 0o755)
	if r := discover.Validate(dir); len(r.Problems) > 0 || len(r.Tools) != 1 || r.Tools[0].Kind != manifest.Wasm {
		t.Errorf("got the tools %v and the problems %v", manifesttest.Names(r), manifesttest.Texts(r))
	}
}

const secretFile = "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: %s}\nspec: {stringData: {value: %s}}\n"

// SPEC-TOOLS 5.1: a file of secrets is its owner's alone.
func TestT51ASecretThatOthersCanReadIsWarnedOf(t *testing.T) {
	r := search(t, func() {
		for mode, name := range map[os.FileMode]string{0o600: "a", 0o400: "b", 0o640: "c", 0o604: "d"} {
			manifesttest.Write(t, "tools", name+".yaml", fmt.Sprintf(secretFile, name, "hunter2"), mode)
		}
		manifesttest.Write(t, "tools", "tool.res.yaml", fmt.Sprintf(manifesttest.Resource, "open"), 0o644)
	})
	manifesttest.Expect(t, r, []string{"open"}, []string{
		"warning tools/c.yaml: holds secrets, and others than its owner have rights to it (mode 0640): chmod 600",
		"warning tools/d.yaml: holds secrets, and others than its owner have rights to it (mode 0604): chmod 600",
	})
	if len(r.Secrets) != 4 {
		t.Errorf("got %d secrets", len(r.Secrets))
	}
}
