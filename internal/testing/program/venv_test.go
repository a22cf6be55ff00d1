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
}
