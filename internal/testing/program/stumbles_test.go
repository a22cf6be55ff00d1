package program

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// What somebody does wrong who follows the pages for the first time has one clear answer.
func TestA3MistakesOfTheFirstHour(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tools/shout/tool.yaml": "name: shout\nversion: 1.0.0\ndescription: S.\nentrypoint: mian.py\nmcp: {input_schema: {type: object}}\n",
		"tools/shout/main.py":   "#!/usr/bin/env python3\n",
		"tools/own/tool.yaml":   "name: own\nversion: 1.0.0\ndescription: V.\nentrypoint: .venv/bin/python\nmcp: {input_schema: {type: object}}\nruntime: {args: [m.py]}\n",
		"tools/fetch":           "#!/usr/bin/env python3\n# /// script\n# dependencies = \"idna\"\n# ///\n",
		"tools/ci.yaml":         "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: p}\nspec: {tool_ref: fetch, required_permissions: []}\n",
		"rules/wipe.yaml":       "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: p}\nspec: {tool_ref: wipe, required_permissions: []}\n",
		"rules/two.yaml":        "apiVersion: orloj.dev/v1\nkind: AgentRole\nmetadata: {name: r}\nspec: {permissions: ['tool:x', 'tool:y']}\n",
		"rules/hello":           "#!/bin/sh\n",
		"orla.yaml":             "auth: {tokens: [{name: ci, file: ci.token}]}\naudit_log: audit.log\n",
		"ci.token":              ciToken,
		"audit.log":             "",
	} {
		testkit.WriteTool(t, dir, name, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules/wipe"), []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, command := range map[string]string{
		`"mian.py" does not exist in the package; did you mean "main.py"?`:    "orla validate",
		"does not exist in the package; make it there: python3 -m venv .venv": "orla validate",
		`dependencies is a text, and must be a list: dependencies = ["idna"]`: "orla validate",
		"no token and no entry in callers has the name ic; did you mean ci?":  "orla can ic hello --tools-dir rules",
		"\n  rules/two.yaml:4:32: ": "orla can ci hello --tools-dir rules",
		`is for the tool "wipe", and there is none; correct the name, or take the rule out; rules/wipe is not executable: chmod +x rules/wipe`: "orla validate --tools-dir rules",
		"no call in the audit log fits": "orla audit show --caller nobody",
		"orla: nowhere does not exist":  "orla install --local nowhere --tools-dir rules",
	} {
		if got := strings.ReplaceAll(shell(t, dir, command+" 2>&1 || true"), dir+"/", ""); !strings.Contains(got, want) {
			t.Errorf("$ %s\nprints:\n%s\nwithout:\n%s", command, got, want)
		}
	}
}

// The configurations of clients that the pages show start an Orla that serves the folder which they name.
func TestG2TheConfigurationsOfClientsWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hi\n")
	begun := regexp.MustCompile(`claude mcp add orla -- (orla .*)`)
	tried := 0
	try := func(page string, argv []string) {
		t.Helper()
		tried++
		for i, word := range argv {
			argv[i] = strings.NewReplacer("/home/ada/tools", tools, "${workspaceFolder}", dir).Replace(word)
		}
		if !slices.Contains(argv, tools) {
			t.Errorf("%s: %q names no folder of this test", page, argv)
		}
		cmd := exec.Command(orlaBinary(t), argv[1:]...)
		cmd.Env = append(cmd.Environ(), "HOME="+dir)
		cmd.Dir = t.TempDir() // clients start servers anywhere
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
		if out, err := cmd.Output(); err != nil || argv[0] != "orla" || !strings.Contains(string(out), `"name":"hello"`) {
			t.Errorf("%s: %q: %v\n%s", page, argv, err, out)
		}
	}
	for _, page := range []string{"README.md", "docs/CLIENTS.md"} {
		for _, block := range examples(t, page) {
			if block.language == "json" {
				var file map[string]map[string]struct {
					Command string
					Args    []string
				}
				if err := json.Unmarshal([]byte(block.text), &file); err != nil {
					t.Errorf("%s: %v in\n%s", page, err, block.text)
				}
				for _, servers := range file {
					for _, s := range servers {
						try(page, append([]string{s.Command}, s.Args...))
					}
				}
			}
			for _, m := range begun.FindAllStringSubmatch(block.text, -1) {
				try(page, strings.Fields(m[1]))
			}
		}
	}
	if tried != 5 {
		t.Errorf("%d configurations were tried; want 5", tried)
	}
}

// What docs/SIMPLE-TOOLS.md and docs/DEPENDENCIES.md show of descriptions is in order.
func TestA3ThePagesOfToolsAreTrue(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, page := range []string{"docs/SIMPLE-TOOLS.md", "docs/DEPENDENCIES.md"} {
		for _, block := range examples(t, page) {
			dir := t.TempDir()
			switch {
			case block.language == "yaml" && strings.HasPrefix(block.text, "name:"):
				testkit.WriteTool(t, dir, "tools/p/tool.yaml", block.text)
				testkit.WriteTool(t, dir, "tools/p/main.py", "#!/usr/bin/env python3\n")
			case block.language == "yaml":
				testkit.WriteTool(t, dir, "tools/p/tool.yaml", "name: p\nversion: 1.0.0\ndescription: P.\nentrypoint: main.py\nmcp: {input_schema: {type: object}}\n"+block.text)
				testkit.WriteTool(t, dir, "tools/p/main.py", "#!/usr/bin/env python3\n")
			case block.language == "python":
				testkit.WriteTool(t, dir, "tools/p", block.text)
			default:
				continue
			}
			checked++
			if got := shell(t, dir, "orla validate 2>&1 || true"); !strings.Contains(got, "1 tool in order, 0 faults") && !strings.Contains(got, "ffmpeg") {
				t.Errorf("%s: with\n%s\norla validate says %s", page, block.text, got)
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d examples were found", checked)
	}
}
