package program

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// varying is what differs from run to run in what commands print of a capsule.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(, \d+s ago)?|pid[= ]+\d+|lasted_ms=\d+`)

// alike leaves that out, and the folder of the tools. Each line counts once: how
// many tracebacks are shown, and which marks they have, depends on the Python.
func alike(text, tools string) string {
	text = normal(varying.ReplaceAllString(strings.ReplaceAll(text, tools, "/srv/tools"), "…"))
	var lines []string
	for line := range strings.Lines(text + "\n") {
		if strings.Trim(line, " ^~\n") != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// The crash loop of docs/OPERATING.md is as the document shows it, and is fixed
// and operated by its commands.
func TestOperatingExplainsACrashLoop(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for a crash loop")
	needs.Programs(t, "python3", "node")
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	for _, args := range [][]string{{"new", "weather", "--lang", "python", "--capsule"}, {"new", "notes", "--lang", "node", "--capsule"}} {
		if out, err := orla(t, dir, args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	edit := func(file, old, with string) {
		t.Helper()
		path := filepath.Join(tools, "weather", file)
		if err := os.WriteFile(path, []byte(strings.Replace(testkit.ReadFile(t, path), old, with, 1)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	edit("main.py", `greeting = "Hello"`, "greeting = \"Hello\"\nimport json\nstations = json.load(open(\"stations.json\"))")
	edit("tool.yaml", "  mode: capsule", "  restart: {initial_ms: 20, max_failures: 4}\n  mode: capsule")

	o := serveThere(t, dir)
	o.waitLog("state", is("weather", "STOPPED"))
	o.waitListed("notes__greet")
	mended := false
	for _, heading := range []string{"Why does it crash?", "Stop, start and restart manually"} {
		for _, block := range indented(section(t, "docs/OPERATING.md", heading)) {
			for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
				command, want := splitStep(step)
				if strings.HasPrefix(command, "orla call weather__greet") && !mended {
					o.waitListed("weather__greet")
					mended = true
				}
				script := strings.TrimSpace(command) + " || true\n" // a call of what is stopped fails
				got := shellAs(t, o, dir, script)
				if alike(got, tools) != alike(want, tools) {
					t.Errorf("$ %s\nprints:\n%s\nthe document says:\n%s", command, got, want)
				}
			}
		}
	}
	if !mended {
		t.Error("the document does not mend it")
	}
}

// shellAs runs a command as shell does, in the environment of a running Orla.
func shellAs(t *testing.T, o *running, dir, script string) string {
	t.Helper()
	var exports strings.Builder
	for _, kv := range o.cmd.Env {
		name, value, _ := strings.Cut(kv, "=")
		if name == "HOME" || strings.HasPrefix(name, "XDG_") {
			exports.WriteString("export " + name + "='" + value + "'\n")
		}
	}
	return shell(t, dir, exports.String()+script)
}
