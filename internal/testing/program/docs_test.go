package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// fence is a fenced block of code in a Markdown text.
var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// section returns what stands below a heading of a document, up to the next one.
func section(t *testing.T, path, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut("\n"+string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", path, heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

// shell runs a command as the documents show it, with orla in its PATH, and
// returns what it prints.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(orlaBinary(t))+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// The ten-line capsules of docs/CAPSULES.md do what is said of them.
func TestTheTenLineCapsulesAnswer(t *testing.T) {
	t.Parallel()
	text := section(t, "docs/CAPSULES.md", "Ten lines")
	blocks := fence.FindAllStringSubmatch(text, -1)
	if len(blocks) < 5 || blocks[0][1] != "yaml" {
		t.Fatalf("%d blocks of code; want a tool.yaml and four capsules", len(blocks))
	}
	var command, printed string
	for _, block := range indented(text) {
		if step, ok := strings.CutPrefix(block, "$ "); ok {
			command, printed = splitStep(step)
		}
	}
	if !strings.Contains(command, "orla call shout") {
		t.Fatalf("the command to try them is %q", command)
	}
	for _, block := range blocks[1:] {
		language, code := block[1], block[2]
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			needs.Programs(t, map[string][]string{"python": {"python3"}, "js": {"node"}, "sh": {"jq"}, "go": {"go"}}[language]...)
			dir := t.TempDir()
			at := filepath.Join(dir, "tools", "shout")
			testkit.WriteTool(t, at, "tool.yaml", unhurried(t, blocks[0][2]))
			if language == "go" {
				needs.Time(t, "compiles a tool")
				testkit.WriteTool(t, at, "main.go", code)
				build := exec.Command("go", "build", "-o", "main", "main.go")
				build.Dir = at
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			} else {
				testkit.WriteTool(t, at, "main", code)
			}
			if got := shell(t, dir, "orla validate"); !strings.Contains(got, "1 tool in order, 0 faults") {
				t.Errorf("orla validate: %s", got)
			}
			if got := shell(t, dir, command); normal(got) != normal(printed) {
				t.Errorf("$ %s\nprints:\n%s\nthe document says:\n%s", command, got, printed)
			}
		})
	}
}

// unhurried gives a documented capsule more time to start: Python and Node take
// theirs on a busy machine.
func unhurried(t *testing.T, manifest string) string {
	t.Helper()
	given := regexp.MustCompile(`(?m)^runtime: \{|^runtime:\n  `).FindString(manifest)
	if given == "" {
		t.Fatalf("no runtime in\n%s", manifest)
	}
	more := map[bool]string{true: ", ", false: "\n  "}[strings.HasSuffix(given, "{")]
	return strings.Replace(manifest, given, given+"startup_timeout_ms: 60000"+more, 1)
}

// What the document shows of the wire is what Orla writes.
func TestTheWireIsAsDescribed(t *testing.T) {
	t.Parallel()
	tools, heard := t.TempDir(), filepath.Join(t.TempDir(), "heard")
	testkit.WriteTool(t, tools, "notes/tool.yaml", "name: notes\nversion: 1.0.0\ndescription: Listens.\nentrypoint: main.sh\nruntime: {mode: capsule}\n")
	testkit.WriteTool(t, tools, "notes/main.sh", `#!/bin/sh
printf '%s\n' '{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"notes","version":"1.0.0","capabilities":["tools"]}}'
while IFS= read -r line; do
	printf '%s\n' "$line" >> `+heard+`
	case $line in
	*'"method":"server/discover"'*) printf '%s\n' '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}' ;;
	*'"method":"initialize"'*) printf '%s\n' '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1.0.0"}}}' ;;
	*'"method":"tools/list"'*) printf '%s\n' '{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"search","inputSchema":{"type":"object"}}]}}' ;;
	esac
done
`)
	o := serveOrla(t, tools)
	if got := o.names(); got != "search" {
		t.Errorf("tools = %q", got)
	}
	raw, err := os.ReadFile(heard)
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`"title":"Orla","version":"[^"]*"`)
	got := strings.Split(strings.TrimSpace(version.ReplaceAllString(string(raw), `"title":"Orla","version":"1.0.0"`)), "\n")
	var want []string
	_, wire, _ := strings.Cut(section(t, "docs/CAPSULES.md", "On the wire"), "\n**What it offers**")
	wire, _, _ = strings.Cut(wire, "\n**A call:**")
	for _, block := range indented(wire) {
		for line := range strings.Lines(block) {
			if sent, ok := strings.CutPrefix(line, "→ "); ok {
				want = append(want, strings.TrimSpace(sent))
			}
		}
	}
	if len(want) != 4 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Orla writes:\n%s\nthe document says:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The examples do what their README shows, called one by one and served together.
func TestTheExampleCapsulesAnswer(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3", "node")
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples", "capsules"), os.DirFS(filepath.Join("..", "..", "..", "examples", "capsules"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes", "tickets"} {
		path := filepath.Join(dir, "examples", "capsules", name, "tool.yaml")
		if err := os.WriteFile(path, []byte(unhurried(t, testkit.ReadFile(t, path))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	readme, err := os.ReadFile(filepath.Join(dir, "examples", "capsules", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	exports, commands := "", 0
	for _, block := range indented(strings.ReplaceAll(string(readme), "=/tmp/", "="+dir+"/")) {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, printed := splitStep(step)
			switch {
			case strings.HasPrefix(command, "export "):
				exports += command + "\n"
			case strings.HasPrefix(command, "orla call "):
				commands++
				if got := shell(t, dir, exports+command); normal(got) != normal(printed) {
					t.Errorf("$ %s\nprints:\n%s\nthe README says:\n%s", command, got, printed)
				}
			}
		}
	}
	if commands < 2 {
		t.Errorf("only %d calls were found in the README", commands)
	}
	o := serveCapsules(t, filepath.Join(dir, "examples", "capsules"), "",
		"NOTES_DIR="+filepath.Join(dir, "notes"), "TICKETS_FILE="+filepath.Join(dir, "tickets.jsonl"))
	want := "notes__read notes__refresh notes__search notes__write tickets__close tickets__comment tickets__list tickets__open tickets__wait"
	if got := o.names(); got != want {
		t.Errorf("the examples offer %s; want %s", got, want)
	}
	for _, call := range []struct{ tool, args, part string }{
		{"notes__write", `{"name":"tea","text":"Three minutes."}`, "tea"},
		{"notes__search", `{"query":"minutes"}`, "tea: Three minutes."},
		{"notes__read", `{"name":"tea"}`, "Three minutes."},
		{"tickets__open", `{"title":"Buy tea"}`, "1"},
		{"tickets__list", `{}`, "Buy tea"},
	} {
		a, err := o.call(call.tool, call.args)
		if err != nil || a.Result == nil || a.Result.IsError || !strings.Contains(a.Result.Content[0].Text, call.part) {
			t.Errorf("%s %s: %+v, %v", call.tool, call.args, a, err)
		}
	}
	o.waitLog("state", is("tickets", "READY"))
}
