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

// The README shows what the program really prints: its five-minute walk is
// walked, command by command.
func TestReadmeShowsWhatIsPrinted(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "python3", "curl")
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(readme), "\n## Five minutes\n")
	walk, _, _ = strings.Cut(walk, "\n## Connect a client\n")

	home := t.TempDir()
	dir := filepath.Join(home, "orla-try") // the folder that the walk makes first
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(orlaBinary(t)) + string(os.PathListSeparator) + os.Getenv("PATH")
	var url string
	var o *running
	shell := func(script string) string {
		t.Helper()
		if url != "" {
			script = strings.ReplaceAll(script, "http://127.0.0.1:8080/mcp", url)
		}
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+path, "HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "orla: ") {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	commands := 0
	for _, block := range indented(unfenced(walk)) {
		switch {
		case strings.HasPrefix(block, "$ orla\n"):
			o = startOrla(t, dir, "--port", "0")
			url, _ = o.waitLog("serving", nil)["url"].(string)
			continue
		case !strings.HasPrefix(block, "$ "):
			if strings.Contains(block, " INF ") {
				continue // the log, which has times
			}
			shell("set -e\n" + block)
			continue
		}
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want := splitStep(step)
			if strings.HasPrefix(command, "curl") { // the walk has said that it is there
				o.waitLog("reload", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["names"]), "wordcount") })
			}
			got := shell(command)
			if normal(got) != normal(want) {
				t.Errorf("$ %s\nprints:\n%s\nthe README says:\n%s", command, got, want)
			}
			commands++
		}
	}
	if commands < 6 {
		t.Errorf("only %d commands were found in the README", commands)
	}
}

// What the page on clients shows of `orla import` is what it prints.
func TestTheClientsPageShowsWhatImportPrints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".vscode"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".vscode", "mcp.json"), []byte(`{"servers": {"github": {
		"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"], "env": {"GITHUB_TOKEN": "planted"}}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, block := range indented(section(t, "docs/CLIENTS.md", "Take over the servers of a client")) {
		if step, ok := strings.CutPrefix(block, "$ orla import"); ok {
			command, want := splitStep("orla import" + step)
			if got := shell(t, dir, command); normal(got) != normal(want) {
				t.Errorf("$ %s\nprints:\n%s\nthe page says:\n%s", command, got, want)
			}
			return
		}
	}
	t.Error("the page does not show orla import")
}

// indented returns the indented blocks of a Markdown text, without their indent.
func indented(text string) []string {
	var blocks []string
	var current []string
	for line := range strings.Lines(text + "\n.\n") {
		body, ok := strings.CutPrefix(line, "    ")
		switch {
		case ok:
			current = append(current, body)
		case strings.TrimSpace(line) != "" && len(current) > 0:
			blocks = append(blocks, strings.Join(current, ""))
			current = nil
		}
	}
	return blocks
}

// unfenced returns a Markdown text with its blocks of shell commands indented, not fenced.
func unfenced(text string) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case !inside && line == "```sh\n":
			inside = true
		case inside && line == "```\n":
			inside = false
		case inside:
			out.WriteString("    " + line)
		default:
			out.WriteString(line)
		}
	}
	return out.String()
}

// What the README shows can be pasted from the file itself: the end of a here-document stands
// at the left edge.
func TestReadmeHasNoIndentedHereDocuments(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(readme), "\n    EOF\n") {
		t.Error("a here-document in the README is indented, so that a shell does not see its end")
	}
}

// make install says when the shell will not find what it has installed.
func TestMakeInstallSpeaksOfPath(t *testing.T) {
	needs.Programs(t, "make", "install")
	dir := t.TempDir()
	makefile, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"Makefile": string(makefile), "bin/orla": "#!/bin/sh\n"} {
		testkit.WriteTool(t, dir, name, text)
	}
	prefix := filepath.Join(dir, "home")
	for path, want := range map[string]bool{os.Getenv("PATH"): true, filepath.Join(prefix, "bin") + ":" + os.Getenv("PATH"): false} {
		cmd := exec.Command("make", "-o", "build", "install", "PREFIX="+prefix)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path, "MAKEFLAGS=")
		out, err := cmd.CombinedOutput()
		if said := strings.Contains(string(out), `export PATH="`+prefix+`/bin:$PATH"`); err != nil || said != want {
			t.Errorf("with PATH=%s: %v, says how to change it: %v, want %v\n%s", path, err, said, want, out)
		}
	}
	if _, err := os.Stat(filepath.Join(prefix, "bin", "orla")); err != nil {
		t.Error(err)
	}
}

// splitStep splits what was typed from what was printed. A line that ends in a
// backslash goes on.
func splitStep(step string) (command, printed string) {
	lines := strings.SplitAfter(step, "\n")
	n := 1
	for n < len(lines) && strings.HasSuffix(strings.TrimRight(lines[n-1], "\n"), "\\") {
		n++
	}
	return strings.Join(lines[:n], ""), strings.Join(lines[n:], "")
}

var duration = regexp.MustCompile(`"duration_ms":\d+`)

// normal leaves out what differs from run to run.
func normal(out string) string {
	out = duration.ReplaceAllString(out, `"duration_ms":0`)
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
