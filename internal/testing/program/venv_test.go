package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC A5, B1: the Python of a .venv beside a tool runs it, in every way to say so.
func TestA5AVenvBesideATool(t *testing.T) {
	t.Parallel()
	needs.Time(t, "makes virtual environments")
	needs.Programs(t, "python3")
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	venv := func(at string) string {
		t.Helper()
		at = filepath.Join(at, ".venv")
		if out, err := exec.Command("python3", "-m", "venv", "--without-pip", at).CombinedOutput(); err != nil {
			t.Fatalf("python3 -m venv: %v\n%s", err, out)
		}
		return at
	}
	const body = "\nimport sys\nprint(sys.prefix)\n"
	own := venv(tools)
	want := map[string]string{}
	for name, shebang := range map[string]string{
		"relative": "#!.venv/bin/python", "dotted": "#!./.venv/bin/python", "by_env": "#!/usr/bin/env .venv/bin/python",
		"name": "#!/usr/bin/env python3", "options": "#!/usr/bin/env -S python3 -u",
	} {
		testkit.WriteTool(t, tools, name+".py", shebang+body)
		want[name] = own
	}
	for name, manifest := range map[string]string{
		"package":    "entrypoint: src/main.py",
		"entrypoint": "entrypoint: .venv/bin/python\nruntime: {args: [src/main.py]}",
		"path":       "entrypoint: src/main.py\nruntime: {env: {PATH: .venv/bin:/usr/bin:/bin}}",
	} {
		at := filepath.Join(tools, name)
		testkit.WriteTool(t, at, "tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: Where it runs.\n"+manifest+"\n")
		testkit.WriteTool(t, at, "src/main.py", "#!/usr/bin/env python3"+body)
		want[name] = venv(at)
	}
	// Where there is none, the machine's Python does.
	testkit.WriteTool(t, filepath.Join(dir, "elsewhere"), "plain.py", "#!/usr/bin/env python3"+body)
	orla := func(folder, name string) string {
		cmd := exec.Command(orlaBinary(t), "call", name, "--tools-dir", folder)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return strings.TrimSpace(string(out))
	}
	for name, prefix := range want {
		if got := orla(tools, name); got != prefix {
			t.Errorf("%s runs in %s, want %s", name, got, prefix)
		}
	}
	if got := orla(filepath.Join(dir, "elsewhere"), "plain"); strings.Contains(got, ".venv") {
		t.Errorf("a tool without one runs in %s", got)
	}
	// One that is named and is not there is not another's.
	testkit.WriteTool(t, filepath.Join(dir, "gone"), "gone.py", "#!.venv/bin/python"+body)
	cmd := exec.Command(orlaBinary(t), "validate", filepath.Join(dir, "gone"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "there is no program "+filepath.Join(dir, "gone", ".venv", "bin", "python")+"; make it, for Python with python3 -m venv") {
		t.Errorf("orla validate says %s", out)
	}
	// The interpreter alone is not a tool.
	testkit.WriteTool(t, filepath.Join(dir, "alone", ".venv", "bin"), "python", "#!/bin/sh\n")
	testkit.WriteTool(t, filepath.Join(dir, "alone"), "tool.yaml", "name: alone\nversion: 1.0.0\ndescription: x\nentrypoint: .venv/bin/python\nruntime: {mode: capsule}\n")
	cmd = exec.Command(orlaBinary(t), "validate", filepath.Join(dir, "alone"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
	if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), `4:13: entrypoint: ".venv/bin/python" needs the name of a program; write runtime: {args: [main.py]}`) {
		t.Errorf("orla validate says %s", out)
	}
}

// SPEC R2: tools that wait for a .venv are served when somebody makes it, without a save.
func TestR2AVenvThatIsMadeWhileOrlaRuns(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	// For these tests a shell is the Python.
	testkit.WriteTool(t, tools, "simple.py", "#!.venv/bin/python\necho it runs\n")
	testkit.WriteTool(t, filepath.Join(tools, "say"), "tool.yaml", "name: say\nversion: 1.0.0\ndescription: It says its version.\nentrypoint: main.py\nruntime: {mode: capsule}\nmcp: {input_schema: {}}\n")
	testkit.WriteTool(t, filepath.Join(tools, "say"), "main.py", strings.ReplaceAll(strings.Replace(shCapsule, "/bin/sh", ".venv/bin/python", 1), "VERSION", "1.0.0"))
	o := serveOrla(t, tools)
	for _, at := range []string{tools, filepath.Join(tools, "say")} {
		bin := filepath.Join(at, ".venv", "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // a tool is run from it
			t.Fatal(err)
		}
	}
	o.waitLog("reload", nil) // when there is no Python in it yet
	for _, at := range []string{tools, filepath.Join(tools, "say")} {
		if err := os.Symlink("/bin/sh", filepath.Join(at, ".venv", "bin", "python")); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"simple": "it runs", "say": "1.0.0"} {
		testkit.Eventually(t, name+" answers", func() bool {
			a, err := o.call(name, "{}")
			return err == nil && a.Result != nil && !a.Result.IsError && len(a.Result.Content) == 1 && strings.TrimSpace(a.Result.Content[0].Text) == want
		})
	}
}
