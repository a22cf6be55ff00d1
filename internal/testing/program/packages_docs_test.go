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

// gitConfig is a configuration of git that has all that it asks for, for an environment.
func gitConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gitconfig")
	text := "[user]\n\tname = a\n\temail = a@example.com\n[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "GIT_CONFIG_GLOBAL=" + file
}

// named finds the blocks of a document that are files or commands: "`FILE`:" is before those of a file.
var named = regexp.MustCompile("(?ms)^(?:`([^`\n]+)`:\n\n)?```([a-z]+)\n(.*?)^```$")

// differing is what each run prints differently.
var differing = regexp.MustCompile(`[0-9a-f]{40}|/\S*/project/`)

// The first five minutes of docs/PACKAGES.md: its files and commands do what is said of them, and print what is shown.
func TestTheWalkOfPACKAGES(t *testing.T) {
	t.Parallel()
	needs.Root(t, "the package runs in a native sandbox")
	needs.Programs(t, "git", "/usr/bin/python3")
	work, config := t.TempDir(), gitConfig(t)
	for _, dir := range []string{filepath.Dir(work), work} { // a sandbox has another user
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
	}
	replaced := strings.NewReplacer("https://example.com/ada", testkit.GitDaemon(t, work, config))
	shown := strings.NewReplacer(replaced.Replace("https://example.com/ada"), "https://example.com/ada")
	blocks := named.FindAllStringSubmatch(section(t, "docs/PACKAGES.md", "Publish your first tool in five minutes"), -1)
	if len(blocks) < 8 {
		t.Fatalf("there are %d blocks", len(blocks))
	}
	in := work
	for _, block := range blocks {
		if block[2] != "console" {
			testkit.WriteTool(t, filepath.Dir(filepath.Join(work, block[1])), filepath.Base(block[1]), replaced.Replace(block[3]))
			continue
		}
		for step := range strings.SplitSeq(strings.TrimPrefix(block[3], "$ "), "\n$ ") {
			command, want, _ := strings.Cut(step, "\n")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", replaced.Replace(command)+"\npwd >&3")
			cmd.Dir, cmd.Env = in, append(os.Environ(), config, "HOME="+work, "PATH="+filepath.Dir(orlaBinary(t))+":/usr/bin:/bin")
			where, err := os.Create(filepath.Join(t.TempDir(), "pwd"))
			if err != nil {
				t.Fatal(err)
			}
			cmd.ExtraFiles = []*os.File{where}
			out, _ := cmd.CombinedOutput() // some are to fail
			at, err := os.ReadFile(where.Name())
			if err != nil || where.Close() != nil {
				t.Fatal(err)
			}
			in = strings.TrimSpace(string(at))
			same := func(text string) string {
				text = spaces.ReplaceAllString(differing.ReplaceAllString(shown.Replace(text), "…"), " ")
				return strings.TrimSpace(text)
			}
			if got := same(string(out)); got != same(want) {
				t.Errorf("$ %s\nprints\n%s\nand the document says\n%s", command, out, want)
			}
		}
	}
}

// spaces separate columns, whose width depends on URLs.
var spaces = regexp.MustCompile(` {2,}`)

// SPEC M1: the example registry in deploy/registry is one, as a git repository, and each of its five tools is installed by
// its name and answers. Its entries say what the packages say.
func TestM1TheExampleRegistry(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "git", "/usr/bin/python3", "/usr/bin/node")
	i := newInstallable(t)
	root, served, config := filepath.Join("..", "..", ".."), t.TempDir(), gitConfig(t)
	url := testkit.GitDaemon(t, served, config)
	repository := func(from, name string, tag bool) {
		t.Helper()
		dir := filepath.Join(served, name)
		script := "git init -q && git add -A && git commit -qm 1"
		if tag {
			script += " && git tag v1.0.0"
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), config)
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, from))); err != nil {
			t.Fatal(err)
		}
		if name == "registry" {
			file := filepath.Join(dir, "registry.yaml")
			text := strings.ReplaceAll(testkit.ReadFile(t, file), "https://github.com/orla-project", url)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	repository("deploy/registry", "registry", false)
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\nregistries: ["+url+"/registry]\n")
	if err := os.Mkdir(filepath.Join(i.home, "notes"), 0o777); err != nil { //nolint:gosec // a sandbox has another user
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(i.home): 0o755, i.home: 0o755, filepath.Join(i.home, "notes"): 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	said := i.must("search", "--json", "e")
	for name, c := range map[string]struct {
		from string
		args []string
		want string
	}{
		"hello":     {"examples/packages/hello", []string{"hello", "--arg", "name=Ada"}, "Hello, Ada!"},
		"slugify":   {"examples/packages/slugify", []string{"slugify", "--arg", "title=One Two"}, "one-two"},
		"today":     {"examples/packages/today", []string{"today"}, "-"},
		"wordcount": {"examples/packages/wordcount", []string{"wordcount", "--arg", "text=one two"}, `"words": 2`},
		"notes":     {"examples/capsules/notes", []string{"notes__write", "--arg", "name=tea", "--arg", "text=3 minutes"}, "9 characters"},
	} {
		repository(c.from, "tool-"+name, true)
		out := i.must("install", name, "--yes")
		about, _, _ := strings.Cut(strings.TrimPrefix(out, name+" 1.0.0\n  "), "\n")
		if !strings.Contains(said, `"`+about+`"`) {
			t.Errorf("%s is %q, and the registry says otherwise:\n%s", name, about, said)
		}
		if got := i.must(append([]string{"call"}, c.args...)...); !strings.Contains(got, c.want) {
			t.Errorf("%s answers %q", name, got)
		}
	}
	if got := testkit.ReadFile(t, filepath.Join(i.home, "notes", "tea.md")); !strings.Contains(got, "3 minutes") {
		t.Errorf("the note is %q", got)
	}
	if out := i.must("verify"); strings.Count(out, "as the lock has it") != 5 {
		t.Errorf("verify prints %s", out)
	}
}
