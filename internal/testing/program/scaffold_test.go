package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// rustPath returns a PATH whose Rust builds for WebAssembly. The first that is
// there may not, while that of the distribution does.
func rustPath(t *testing.T) string {
	t.Helper()
	needs.Programs(t, "make")
	path := os.Getenv("PATH")
	var said []string
	for _, try := range []string{path, "/usr/bin" + string(os.PathListSeparator) + path} {
		for _, target := range []string{"wasm32-wasip1", "wasm32-wasi"} {
			cmd := exec.Command("sh", "-c", "cargo --version && rustc --print target-libdir --target "+target)
			cmd.Env = append(os.Environ(), "PATH="+try)
			out, err := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if dir := lines[len(lines)-1]; err == nil {
				if _, err := os.Stat(dir); err == nil {
					return try
				}
			}
			said = append(said, lines[len(lines)-1])
		}
	}
	needs.Missing(t, "there is no Rust that builds for WebAssembly (Debian: cargo libstd-rust-dev-wasm32 lld-14; else: rustup target add wasm32-wasip1): %s", strings.Join(said, "; "))
	return ""
}

// SPEC-TOOLS 9.1: what orla wasm scaffold makes builds, passes its test, is served
// as it stands, and fails where something else is expected. With Go, all of it
// prints what docs/TOOLS.md shows.
func TestT91ScaffoldedProjects(t *testing.T) {
	t.Parallel()
	needs.Time(t, "compiles projects")
	needs.Programs(t, "make", "go")
	for _, lang := range []string{"go", "rust"} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			p := project{t: t, dir: t.TempDir(), path: os.Getenv("PATH")}
			if lang == "rust" {
				p.path = rustPath(t)
			}
			steps := 0
			for _, block := range indented(section(t, "docs/TOOLS.md", "Write a wasm tool")) {
				for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
					command, want := splitStep(step)
					got := p.shell(strings.Replace(command, "--lang go", "--lang "+lang, 1))
					if lang == "go" && measures.ReplaceAllString(normal(got), "N") != measures.ReplaceAllString(normal(want), "N") {
						t.Errorf("$ %s\nprints:\n%s\nthe document says:\n%s", command, got, want)
					}
					if strings.HasPrefix(command, "make") && !strings.Contains(got, "2 fixtures passed") || strings.Contains(got, "warning") {
						t.Errorf("$ %s\nprints:\n%s", command, got)
					}
					steps++
				}
			}
			if steps != 3 {
				t.Fatalf("the document shows %d commands; want 3", steps)
			}

			if out := p.shell("orla validate"); !strings.Contains(out, "1 tool in order, 0 faults") {
				t.Errorf("orla validate: %s", out)
			}
			o := serveOrla(t, filepath.Join(p.dir, "tools"))
			const want = "Hello, Ada \"ü\\\t😀!"
			if a, err := o.call("greet", `{"name":"Ada \"ü\\\t\ud83d\ude00"}`); err != nil || a.Result == nil || a.Result.IsError || a.Result.Content[0].Text != want {
				t.Errorf("it answers %+v, %v; want %s", a.Result, err, want)
			}

			fixture := filepath.Join(p.dir, "tools", "greet", "fixtures", "greets.json")
			other := strings.Replace(testkit.ReadFile(t, fixture), "Hello", "Good day", 1)
			if err := os.WriteFile(fixture, []byte(other), 0o644); err != nil {
				t.Fatal(err)
			}
			out := p.shell("! make -C tools/greet test")
			if !strings.Contains(out, `want "Good day, Ada!", got "Hello, Ada!"`) || strings.Contains(out, " build ") {
				t.Errorf("make test where another greeting is expected:\n%s", out)
			}
		})
	}
}

// measures are what a module takes, which is another thing with each compiler.
var measures = regexp.MustCompile(`fuel \d+|memory [\d.]+M`)

// project is a folder in which a tool is written.
type project struct {
	t         *testing.T
	dir, path string
}

// shell runs a command, with orla in PATH, and returns what it prints.
func (p project) shell(script string) string {
	p.t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(orlaBinary(p.t))+string(os.PathListSeparator)+p.path,
		"ORLA_STATE_DIR="+filepath.Join(p.dir, ".state"), "ORLA_SOCKET=none")
	if !needs.More() {
		cmd.Env = append(cmd.Env, "CARGO_PROFILE_RELEASE_LTO=off") // two thirds of what cargo takes
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// What people begin with is as the formatters have it.
func TestT91ScaffoldedGoIsFormatted(t *testing.T) {
	needs.Time(t, "compiles a project")
	t.Parallel()
	needs.Programs(t, "gofmt", "go")
	dir := t.TempDir()
	if out, err := orla(t, dir, "tool", "scaffold", "echo", "--lang", "go"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v: %s", err, out)
	}
	vet := exec.Command("go", "vet", ".")
	vet.Dir = filepath.Join(dir, "echo")
	vet.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}
