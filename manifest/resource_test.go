package manifest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/orla-project/orla/internal/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// realPath is a path without links.
func realPath(t *testing.T, dir string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// beside makes what files of resources refer to: programs and a module.
func beside(t *testing.T, dir string) {
	t.Helper()
	write(t, dir, "server.sh", script, 0o755)
	write(t, dir, "plain.sh", script, 0o644)
	write(t, dir, "echo.wasm", "\x00asm", 0o644)
	write(t, dir, "bin/npx", script, 0o755)
	t.Setenv("PATH", filepath.Join(dir, "bin"))
}

// SPEC-TOOLS 1.1, 1.2, 3.5: every field, and what holds where it is left out.
func TestT12GoodResources(t *testing.T) {
	files, err := filepath.Glob("testdata/resources/good/*.[yj]*ml")
	more, _ := filepath.Glob("testdata/resources/good/*.res.json")
	if err != nil || len(files) == 0 || len(more) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range append(files, more...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := realPath(t, t.TempDir())
			beside(t, dir)
			write(t, dir, filepath.Base(file), string(read(t, file)), 0o600)
			r := manifest.Validate(filepath.Join(dir, filepath.Base(file)))
			if len(r.Problems) > 0 || len(r.Tools)+len(r.Secrets) == 0 {
				t.Fatalf("got %d tools and the problems %v", len(r.Tools), texts(r))
			}
			got, err := json.MarshalIndent(map[string]any{"Tools": r.Tools, "Secrets": r.Secrets}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(bytes.ReplaceAll(got, []byte(dir), []byte("FOLDER")), '\n')
			golden := strings.TrimSuffix(strings.TrimSuffix(file, ".yaml"), ".res.json") + ".golden"
			if *update {
				write(t, ".", golden, string(got), 0o644)
			}
			if want := read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// SPEC-TOOLS 1.1: every fault of a file with its line and column, and what is allowed.
func TestT11BadResources(t *testing.T) {
	files, err := filepath.Glob("testdata/resources/bad/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := realPath(t, t.TempDir())
			t.Chdir(dir)
			beside(t, dir)
			want, at := "", -1
			for i, f := range archive.Files {
				if f.Name == "problems" {
					want, at = string(f.Data), i
					continue
				}
				write(t, dir, f.Name, string(f.Data), 0o600)
			}
			r := manifest.Validate(".")
			got := strings.ReplaceAll(strings.Join(append(texts(r), "served: "+strings.Join(names(r), " ")), "\n"), dir, "FOLDER") + "\n"
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is told:\n%s", got)
			}
			if *update && at >= 0 {
				archive.Files[at].Data = []byte(got)
				write(t, home, file, string(txtar.Format(archive)), 0o644)
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, p := range r.Problems {
				_, placed := errors.AsType[yamldoc.Fault](p.Err)
				if p.Severity == manifest.Fault && !placed {
					t.Errorf("a fault that is not at a place: %v", p.Err)
				}
			}
		})
	}
}

// secretValues tells what is in the secrets of a result.
func secretValues(r manifest.Result) map[string]string {
	values := map[string]string{}
	for _, s := range r.Secrets {
		for key, value := range s.Data {
			values[s.Namespace+"/"+s.Name+":"+key] = value.Reveal()
		}
	}
	return values
}

// SPEC-TOOLS 5.1: data is base64, stringData is as it is written and wins.
func TestT51SecretsAreRead(t *testing.T) {
	r := manifest.Validate("testdata/resources/good/secrets.yaml")
	want := map[string]string{
		"default/as-in-kubernetes:value": "yes",
		"team/both:value":                "wins",
		"team/both:blob":                 "\x00\xff",
		"team/both:tls.crt":              "a",
		"team/both:number":               "0123",
		"team/both:lines":                "a\nb",
	}
	if got := secretValues(r); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

const secretFile = "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: %s}\nspec: {stringData: {value: %s}}\n"

// SPEC-TOOLS 5.1: a file of secrets is its owner's alone.
func TestT51ASecretThatOthersCanReadIsWarnedOf(t *testing.T) {
	r := discover(t, func() {
		for mode, name := range map[os.FileMode]string{0o600: "a", 0o400: "b", 0o640: "c", 0o604: "d"} {
			write(t, "tools", name+".yaml", fmt.Sprintf(secretFile, name, "hunter2"), mode)
		}
		write(t, "tools", "tool.res.yaml", fmt.Sprintf(resource, "open"), 0o644)
	})
	expect(t, r, []string{"open"}, []string{
		"warning tools/c.yaml: holds secrets, and others than its owner have rights to it (mode 0640): chmod 600",
		"warning tools/d.yaml: holds secrets, and others than its owner have rights to it (mode 0604): chmod 600",
	})
	if len(r.Secrets) != 4 {
		t.Errorf("got %d secrets", len(r.Secrets))
	}
}

// SPEC-TOOLS 1.1: a file of any name, anywhere in the folder but in packages.
// What it stands among stays data.
func TestT11ResourcesAreFoundAmongData(t *testing.T) {
	r := discover(t, func() {
		write(t, "tools", "a.yml", fmt.Sprintf(resource, "a"), 0o644)
		write(t, "tools", "deep/er/b.json", `{"kind":"Tool","metadata":{"name":"b"},"spec":{"endpoint":"https://b"},"apiVersion":"orloj.dev/v1"}`, 0o644)
		write(t, "tools", "run.yaml", fmt.Sprintf(resource, "run"), 0o755)
		write(t, "tools", "side.tool.yaml", fmt.Sprintf(resource, "side"), 0o644)
		write(t, "tools", "late.yaml", strings.Repeat("# long\n", 9000)+fmt.Sprintf(resource, "late"), 0o644)
		link(t, "deep/er/b.json", "tools/again.json")
		writePackage(t, "tools/pack", "pack", "1.0.0")
		for name, text := range map[string]string{
			"pack/res.yaml": fmt.Sprintf(resource, "x"), ".hidden.yaml": fmt.Sprintf(resource, "x"), "node_modules/x.yaml": fmt.Sprintf(resource, "x"),
			"old.yaml~": fmt.Sprintf(resource, "x"), "res.txt": fmt.Sprintf(resource, "x"),
			"too-late.yaml":  strings.Repeat("# too long\n", 9000) + fmt.Sprintf(resource, "x"),
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
			write(t, "tools", name, text, 0o644)
		}
		write(t, "tools", "huge.yaml", fmt.Sprintf(resource, "huge")+strings.Repeat("# x\n", 1<<18), 0o644)
	})
	expect(t, r, []string{"a", "b", "late", "pack", "run", "side"}, []string{
		"error tools/huge.yaml: tools/huge.yaml:1:1: the file has 1048577 bytes, more than the 1048576 allowed" + mayBeRule,
	})
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
		write(t, dir, "t.yaml", tool+broken, 0o644)
		r := manifest.Validate(dir)
		if got := strings.Join(texts(r), "\n"); len(r.Tools) != 1 || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %d tools and %q; want one and %q", broken, len(r.Tools), got, want)
		}
	}
}

// SPEC-TOOLS 1.1: how many documents a file may have is bounded, and the first ones are served.
func TestT11DocumentsAreBounded(t *testing.T) {
	r := discover(t, func() {
		var text strings.Builder
		fmt.Fprintf(&text, resource, "first")
		for range 999 {
			text.WriteString("---\n")
		}
		text.WriteString("---\n" + fmt.Sprintf(resource, "last"))
		write(t, "tools", "many.yaml", text.String(), 0o644)
	})
	expect(t, r, []string{"first"}, []string{
		"error tools/many.yaml: tools/many.yaml:1004:1: a file may hold 1000 documents; this one and those below it are not read",
	})
}

// A file whose documents are all at fault does not fill the log.
func TestT11FaultyDocumentsAreListedUpToANumber(t *testing.T) {
	r := discover(t, func() {
		bad := strings.Repeat("kind: Tool\nx: [\n---\n", 150)
		write(t, "tools", "bad.yaml", bad+fmt.Sprintf(resource, "last"), 0o644)
	})
	if n := len(r.Problems); n != 101 || !slices.Equal(names(r), []string{"last"}) {
		t.Fatalf("%d problems, tools %q", n, names(r))
	}
	if got, want := r.Problems[100].Err.Error(), "tools/bad.yaml:1:1: 50 more documents of this file are at fault"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// SPEC A4: one name is one tool of any kind; the project's hide the user's, secrets too.
func TestT11ConflictsOfAllKinds(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "tools", "a.yaml", fmt.Sprintf(resource, "same")+"---\n"+fmt.Sprintf(secretFile, "same", "project"), 0o600)
	write(t, "tools", "b/same.sh", script, 0o755)
	write(t, "tools", "c.yaml", fmt.Sprintf(secretFile, "same", "another"), 0o600)
	write(t, "home", "z.yaml", fmt.Sprintf(resource, "same")+"---\n"+fmt.Sprintf(secretFile, "same", "user")+"---\n"+fmt.Sprintf(secretFile, "mine", "user"), 0o600)
	r := manifest.Discover(manifest.Options{ToolsDir: "tools", UserDir: "home"})
	expect(t, r, []string{"same"}, []string{
		`error tools/b/same.sh: conflict: the tool "same" is served from tools/a.yaml:3; rename one of the two`,
		`error tools/c.yaml: tools/c.yaml:3:18: metadata.name: conflict: the secret "same" of namespace default is that of tools/a.yaml:8; rename one of the two`,
	})
	want := map[string]string{"default/same:value": "project", "default/mine:value": "user"}
	if got := secretValues(r); !reflect.DeepEqual(got, want) {
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
			write(t, "tools", "a.yaml", c.project, 0o644)
			write(t, "home", "b.yaml", c.user, 0o644)
			r := manifest.Discover(manifest.Options{ToolsDir: "tools", UserDir: "home"})
			if warned := len(r.Problems) == 1; warned != (name == "nowhere") || len(r.Tools) == 0 {
				t.Errorf("got %q and %q", names(r), texts(r))
			}
			if r := manifest.Validate("tools/a.yaml"); len(r.Problems) > 0 {
				t.Errorf("the file alone: %q", texts(r))
			}
		})
	}
}

// SPEC-TOOLS 3.5: what an McpServer runs stands beside its file, and is no tool itself.
func TestT35TheProgramOfAServerIsNoTool(t *testing.T) {
	const server = "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: %s}\nspec: {transport: stdio, command: %s, args: [-u, %s]}\n"
	r := discover(t, func() {
		write(t, "tools", "a/server.sh", script, 0o755)
		write(t, "tools", "a/res.yaml", fmt.Sprintf(server, "one", "./server.sh", "x"), 0o644)
		write(t, "tools", "d/faulty.sh", script, 0o755)
		write(t, "tools", "d/res.yaml", fmt.Sprintf(server, "four", "./faulty.sh", "x")+"status: x\n", 0o644)
		write(t, "tools", "b/res.yaml", fmt.Sprintf(server, "two", "sh", "main.py")+"---\n"+fmt.Sprintf(server, "three", "sh", "lib/linked.py"), 0o644)
		write(t, "tools", "b/main.py", "print()", 0o644)
		write(t, "tools", "b/lib/real.py", script, 0o755)
		link(t, "real.py", "tools/b/lib/linked.py")
		write(t, "tools", "b/other.py", "print()", 0o644)
		write(t, "tools", "c/main.sh", script, 0o755)
	})
	expect(t, r, []string{"main", "one", "three", "two"}, []string{
		"warning tools/b/other.py: is not executable: chmod +x tools/b/other.py",
		"error tools/d/res.yaml: tools/d/res.yaml:5:1: status: unknown key",
	})
}

// SPEC-TOOLS 3.6: a command that stands beside its file is no tool itself, and what
// an isolated server finds elsewhere hides none.
func TestT36TheCommandOfAToolIsNoTool(t *testing.T) {
	const cli = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: %s}\nspec: {type: cli, cli: {command: %s%s}, runtime: {isolation_mode: %s}}\n"
	r := discover(t, func() {
		write(t, "tools", "a/bin/count", script, 0o755)
		write(t, "tools", "a/other", script, 0o755)
		write(t, "tools", "a/one.yaml", fmt.Sprintf(cli, "one", "./bin/count", "", "sandboxed"), 0o644)
		write(t, "tools", "b/sh", script, 0o755)
		write(t, "tools", "b/two.yaml", fmt.Sprintf(cli, "two", "sh", "", "none"), 0o644)
		write(t, "tools", "c/npx", script, 0o755)
		write(t, "tools", "c/three.yaml", "apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: three}\n"+
			"spec: {transport: stdio, command: npx, default_tool_runtime: {isolation_mode: container}}\n", 0o644)
	})
	expect(t, r, []string{"npx", "one", "other", "sh", "three", "two"}, nil)
}

// A reload keeps what has not changed, so the same files are the same manifests.
func TestT11TheSameFilesAreTheSameTools(t *testing.T) {
	dir := t.TempDir()
	beside(t, dir)
	for _, name := range []string{"every_key.yaml", "kinds.yaml", "servers.yaml", "secrets.yaml"} {
		write(t, dir, name, string(read(t, "testdata/resources/good/"+name)), 0o600)
	}
	first := manifest.Validate(dir)
	if len(first.Tools) < 10 {
		t.Fatalf("got %q", names(first))
	}
	for range 3 {
		if again := manifest.Validate(dir); !reflect.DeepEqual(again, first) {
			t.Fatalf("at first\n%+v\nand then\n%+v", first, again)
		}
	}
}

// SPEC-TOOLS 1.1: a folder of large data costs the first bytes of each file: of
// a terabyte nobody would see the end.
func TestT11LargeDataCostsItsFirstBytes(t *testing.T) {
	r := discover(t, func() {
		for i := range 100 {
			name := fmt.Sprintf("tools/data%d%s", i, []string{".json", ".yaml", ".yml"}[i%3])
			text := []string{"{", `{"x": {"kind": "Tool"}`, "kind: Tool\n", "just: data\n"}[i%4]
			write(t, ".", name, text, 0o644)
			if err := os.Truncate(name, 1<<40); err != nil {
				t.Skipf("no sparse files here: %v", err)
			}
		}
		write(t, "tools", "res.yaml", fmt.Sprintf(resource, "res"), 0o644)
		write(t, "tools", "ours.yaml", fmt.Sprintf(resource, "ours"), 0o644)
		if err := os.Truncate("tools/ours.yaml", 1<<40); err != nil {
			t.Fatal(err)
		}
	})
	expect(t, r, []string{"res"}, []string{"error tools/ours.yaml: tools/ours.yaml:1:1: the file has 1048577 bytes, more than the 1048576 allowed" + mayBeRule})
}

// SPEC-TOOLS 3.7: a module is the tool that a resource makes of it, and no
// program beside, whatever mode its compiler gave it.
func TestT37AModuleIsNoProgram(t *testing.T) {
	dir := realPath(t, t.TempDir())
	const resource = "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: echo}\nspec: {type: wasm, wasm: {module: bin/echo.wasm}}\n"
	write(t, dir, "echo.yaml", resource, 0o644)
	write(t, dir, "bin/echo.wasm", "\x00asm\x01\x00\x00\x00", 0o755)
	write(t, dir, "bin/echo", "\x00asm\x01\x00\x00\x00", 0o755)
	if r := manifest.Validate(dir); len(r.Problems) > 0 || len(r.Tools) != 1 || r.Tools[0].Kind != manifest.Wasm {
		t.Errorf("got the tools %v and the problems %v", names(r), texts(r))
	}
}

// SPEC-TOOLS 7: what names the folder that a resource's file is in does not show
// it to a process that is isolated, by whatever way.
func TestT7AFolderOfResourcesIsNotExposed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sub/x", "x", 0o644)
	if err := os.Symlink(".", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	server := manifest.Tool{Kind: manifest.Capsule, Dir: dir, Path: "npx"}
	server.Runtime.Generated = true
	server.Run.Args = []string{".", "./", dir, "link", "sub/..", "..", "sub"}
	if got := server.Exposed(); !slices.Equal(got, []string{filepath.Join(dir, "sub")}) {
		t.Errorf("an McpServer sees %q", got)
	}
	command := manifest.Tool{Kind: manifest.Cli, Dir: dir, Resource: &manifest.Resource{CLI: &manifest.CLI{WorkingDir: dir}}}
	if got := command.Exposed(); len(got) > 0 {
		t.Errorf("a command sees %q", got)
	}
}

// SPEC-TOOLS 8.5: clients are told what somebody wrote, and no default.
func TestT85HintsAreOnlyOfWrittenClasses(t *testing.T) {
	for spec, want := range map[string]string{
		`type: cli, cli: {command: sh, args: ["-c", "{{.a}}"]}, runtime: {isolation_mode: none}`: `null`,
		`endpoint: "http://a"`: `null`,
		`endpoint: "http://a", risk_level: critical, runtime: {isolation_mode: none}`: `null`,
		`endpoint: "http://a", operation_classes: []`:                                 `null`,
		`type: mcp, mcp_server_ref: s, mcp_tool_name: t, risk_level: low`:             `null`,
		`endpoint: "http://a", operation_classes: [read]`:                             `{"openWorldHint":true,"readOnlyHint":true}`,
		`endpoint: "http://a", operation_classes: [read, write]`:                      `{"openWorldHint":true}`,
		`endpoint: "http://a", operation_classes: [delete]`:                           `{"destructiveHint":true,"openWorldHint":true}`,
		`type: mcp, mcp_server_ref: s, mcp_tool_name: t, operation_classes: [admin]`:  `{"destructiveHint":true,"openWorldHint":true}`,
		`endpoint: "http://a", risk_level: high, operation_classes: [read]`:           `{"openWorldHint":true,"readOnlyHint":true}`,
	} {
		at := filepath.Join(t.TempDir(), "a.yaml")
		if err := os.WriteFile(at, []byte("{apiVersion: orloj.dev/v1, kind: Tool, metadata: {name: a}, spec: {"+spec+"}}"), 0o644); err != nil {
			t.Fatal(err)
		}
		found := manifest.Validate(at)
		if len(found.Tools) != 1 {
			t.Errorf("%s: %+v", spec, found)
			continue
		}
		got, err := json.Marshal(found.Tools[0].Listed().Annotations)
		if err != nil {
			t.Fatal(err)
		}
		var said map[string]any
		if err := json.Unmarshal(got, &said); err != nil {
			t.Fatal(err)
		}
		for _, usual := range []string{"readOnlyHint", "idempotentHint"} { // that is what their absence means
			if said[usual] == false {
				delete(said, usual)
			}
		}
		if got, err = json.Marshal(said); err != nil || string(got) != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
}
