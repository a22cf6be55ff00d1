package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// fiveTools writes a repository with five tools of Python and Node that have dependencies, each declared in another
// way, and returns the answers of the tools.
func fiveTools(t *testing.T, dir string, x *index) map[string]string {
	t.Helper()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, "tools", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as people have it
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	const python = "#!/usr/bin/env python3\n"
	const node = "#!/usr/bin/env node\nimport acme from 'acme';\nconsole.log('%s', acme.version);\n"
	write("script.py", python+"# /// script\n# dependencies = [\"acme<2\"]\n# ///\n# /// tool\n# description: x\n# ///\nimport acme\nprint('script', acme.version)\n")
	write("project/tool.yaml", "name: project\nversion: 1.0.0\ndescription: x\nentrypoint: main.py\nmcp: {input_schema: {}}\n")
	write("project/main.py", python+"import acme, gadget\nprint('project', acme.version)\n")
	write("project/pyproject.toml", pyproject)
	write("project/uv.lock", x.uvLock(t))
	write("list/tool.yaml", "name: list\nversion: 1.0.0\ndescription: x\nentrypoint: main.py\nmcp: {input_schema: {type: object}}\nruntime: {mode: capsule, startup_timeout_ms: 30000}\n")
	write("list/main.py", strings.NewReplacer("#!PYTHON -SEB\n", python, "NAME", "list", `os.environ["LOCK"]`, "os.path.realpath(__file__)").Replace(capsuleMain))
	write("list/answer.py", "import acme, importlib.util\n"+says(`"list %s %s" % (acme.version, importlib.util.find_spec("gadget") is not None)`))
	write("list/requirements.txt", "acme==1.0.0\n")
	wants := map[string]string{"script": "script 1.0.0", "project": "project 1.0.0", "list": "list 1.0.0 False", "npm": "npm 1.0.0"}
	locks := map[string]string{"npm": "package-lock.json"}
	if _, err := exec.LookPath("pnpm"); err == nil {
		locks["pnpm"], wants["pnpm"] = "pnpm-lock.yaml", "pnpm 1.0.0"
	}
	for name, lock := range locks {
		write(name+"/tool.yaml", "name: "+name+"\nversion: 1.0.0\ndescription: x\nentrypoint: main.mjs\nmcp: {input_schema: {}}\n")
		write(name+"/main.mjs", fmt.Sprintf(node, name))
		write(name+"/package.json", packageJSON)
		text := x.packageLock("1.0.0")
		if name == "pnpm" {
			text = fmt.Sprintf("lockfileVersion: '9.0'\nsettings:\n  autoInstallPeers: true\n  excludeLinksFromLockfile: false\nimporters:\n  .:\n    dependencies:\n      acme:\n        specifier: 1.0.0\n        version: 1.0.0\n"+
				"packages:\n  acme@1.0.0:\n    resolution: {integrity: %s}\nsnapshots:\n  acme@1.0.0: {}\n", x.integrity("1.0.0"))
		}
		write(name+"/"+lock, text)
	}
	return wants
}

// SPEC R2, R3, R4: a fresh clone of a repository with tools of Python and Node answers after one command. A new package in
// requirements.txt, saved while clients call, is there without a failed call. No installer is in the process tree.
func TestR2AFreshClone(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "uv", "npm", "node", "git")
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	x, src := newIndex(t), t.TempDir()
	wants := fiveTools(t, src, x)
	if len(wants) < 5 {
		t.Log("without pnpm")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	for _, words := range [][]string{{"init", "-q", src}, {"-C", src, "add", "-A"}, {"-C", src, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "x"}, {"clone", "-q", src, clone}} {
		if out, err := exec.CommandContext(t.Context(), "git", words...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v %s", words, err, out)
		}
	}
	env := append(x.environ(t), "PATH="+filepath.Dir(interpreter)+":"+os.Getenv("PATH"), "HOME="+t.TempDir(), "ORLA_TIMEOUT=120s", "ORLA_QUEUE_TIMEOUT=120s", "ORLA_STATE_DIR="+t.TempDir())
	o := startPrepared(t, clone, withEnv(env...), orlaBinary(t), "serve", "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	for name, want := range wants {
		if got := strings.TrimSpace(o.mustCall(name)); got != want {
			t.Errorf("%s answers %q, want %q", name, got, want)
		}
	}
	load, stop := press(t, []caller{o.session("list"), o.session("list")}, lossless)
	if err := os.WriteFile(filepath.Join(clone, "tools", "list", "requirements.txt"), []byte("acme==2.0.0\ngadget\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the new package is there", func() bool { return o.mustCall("list") == "list 2.0.0 True" })
	stop()
	if load.calls.Load() == 0 || load.failed.Load() > 0 {
		t.Errorf("%d calls during the install, %d failed", load.calls.Load(), load.failed.Load())
	}
	for _, line := range below(o.cmd.Process.Pid) {
		program := filepath.Base(strings.Split(line, "\x00")[0])
		if !strings.HasPrefix(program, "python") && program != "orla" && program != "tool-guard" {
			t.Errorf("a process runs %q", line)
		}
	}
}

// below returns the command lines of the processes below a process.
func below(pid int) (lines []string) {
	for _, child := range children(pid) {
		if line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "cmdline")); err == nil { // otherwise it has ended
			lines = append(append(lines, string(line)), below(child)...)
		}
	}
	return lines
}
