package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// offline returns variables with which installers take packages from a new folder alone, which has two
// versions of acme, and one of gadget that needs the first.
func offline(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	testkit.Wheel(t, dir, "acme", "1.0", "version = '1.0'\ndef main(): print(version)\n")
	testkit.Wheel(t, dir, "acme", "2.0", "version = '2.0'\ndef main(): print(version)\n")
	testkit.Wheel(t, dir, "gadget", "1.0", "def main(): pass\n", "acme<2")
	return []string{"PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + dir, "UV_FIND_LINKS=" + dir, "UV_NO_INDEX=1", "UV_OFFLINE=1", "UV_CACHE_DIR=" + t.TempDir()}
}

// withoutUV returns a PATH that has Python, and not uv.
func withoutUV(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"nice", "sh"} {
		at, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(dir, program)); err != nil {
			t.Fatal(err)
		}
	}
	return "PATH=" + dir
}

// python returns the real path of a Python.
func python(t *testing.T) string {
	t.Helper()
	needs.Programs(t, "python3")
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import ensurepip, os, sys; print(os.path.realpath(sys.executable))").Output()
	if err != nil {
		needs.Missing(t, "python3 has no venv: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// version runs a script in an environment and returns what it prints.
func output(t *testing.T, env Env, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), env.Program, append(env.Args, script)...)
	cmd.Env = append(os.Environ(), env.Vars...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

const printsVersion = "import acme; print(acme.version)\n"

// SPEC R2: what each file declares is installed, without uv and with it. R3: the environment is whole where it is
// in the end, with the programs of its packages.
func TestR2PythonPackages(t *testing.T) {
	base, packages := python(t), offline(t)
	block := func(list string) string {
		return "# /// script\n# requires-python = \">=3.8\"\n# dependencies = " + list + "\n# ///\n# /// tool\n# description: x\n# ///\n" + printsVersion
	}
	for _, installer := range []string{"pip", "uv"} {
		t.Run(installer, func(t *testing.T) {
			environ := packages
			if installer == "pip" {
				needs.Time(t, "makes environments with pip")
				environ = append(environ, withoutUV(t))
			} else {
				needs.Programs(t, "uv")
			}
			s := store(t, t.TempDir(), environ...)
			for name, c := range map[string]struct {
				text  string
				files map[string]string
				want  string // a version, or a part of the error
			}{
				"block":        {block(`["acme<2"]`), map[string]string{}, "1.0"},
				"requirements": {printsVersion, map[string]string{"requirements.txt": "-r more.txt\n", "more.txt": "acme\n"}, "2.0"},
				"project":      {printsVersion, map[string]string{"pyproject.toml": "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\n  'gadget', # needs acme\n]\n"}, "1.0"},
				"missing":      {printsVersion, map[string]string{"requirements.txt": "nosuchpackage\n"}, "nosuchpackage"},
				"conflict":     {printsVersion, map[string]string{"requirements.txt": "gadget\nacme==2.0\n"}, "acme"},
				"broken":       {printsVersion, map[string]string{"requirements.txt": "acme =/= 2\n"}, "acme"},
				"future":       {strings.Replace(block(`["acme"]`), ">=3.8", ">=3.99", 1), map[string]string{}, "3.99"},
			} {
				if quick := name == "block" || name == "missing" || name == "project" && needs.More(); installer == "pip" && !quick {
					continue // venv takes seconds
				}
				from := source(t, Python, c.text, c.files)
				from.Interpreter = base
				env, err := s.Build(t.Context(), detect(t, s, from), quiet)
				switch {
				case err != nil && (c.want[0] == '1' || c.want[0] == '2'):
					t.Errorf("%s: %v", name, err)
				case err != nil:
					if !strings.Contains(err.Error(), c.want) {
						t.Errorf("%s: the error is %v", name, err)
					}
				default:
					if got := output(t, env, from.Script); got != c.want {
						t.Errorf("%s: it prints %q", name, got)
					}
					if out, err := exec.CommandContext(t.Context(), filepath.Join(env.Dir, "bin", "acme-run")).Output(); err != nil || strings.TrimSpace(string(out)) != c.want {
						t.Errorf("%s: the program of the package: %v %s", name, err, out)
					}
				}
			}
		})
	}
}

// SPEC R4: a declaration that is not TOML is one line with its file, also if pip reads it.
func TestR4ADeclarationThatIsNotTOML(t *testing.T) {
	from := source(t, Python, "# /// script\n# dependencies = [\"acme\"\n# ///\n"+printsVersion, map[string]string{})
	from.Interpreter = python(t)
	s := store(t, t.TempDir(), append(offline(t), withoutUV(t))...)
	_, err := s.Build(t.Context(), detect(t, s, from), quiet)
	if err == nil || !strings.Contains(err.Error(), from.Script+": not TOML: ") || strings.Contains(err.Error(), "Traceback") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// SPEC R2: the versions of uv.lock are installed. A lock that is out of date, or that nothing can read, is an error.
func TestR2LockOfUV(t *testing.T) {
	base, packages := python(t), offline(t)
	from := source(t, Python, printsVersion, map[string]string{
		"pyproject.toml": "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\"acme\"]\n",
		"uv.lock":        "version = 1\n",
	})
	from.Interpreter = base
	without := store(t, t.TempDir(), append(packages, withoutUV(t))...)
	if _, err := without.Build(t.Context(), detect(t, without, from), quiet); err == nil || !strings.Contains(err.Error(), "can only be read by uv") {
		t.Errorf("without uv: %v", err)
	}
	needs.Programs(t, "uv")
	s := store(t, t.TempDir(), packages...)
	dir := from.Folders[0]
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil {
		t.Error("a broken lock: no error")
	}
	put(t, filepath.Join(dir, "pyproject.toml"), "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\"acme<2\"]\n")
	if err := os.Remove(filepath.Join(dir, "uv.lock")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "uv", "lock", "--python", base)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), packages...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	env, err := s.Build(t.Context(), detect(t, s, from), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, env, from.Script); got != "1.0" {
		t.Errorf("it prints %q", got)
	}
	put(t, filepath.Join(dir, "pyproject.toml"), "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\"acme>=2\"]\n")
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("a lock that is out of date: %v", err)
	}
}

// SPEC R2: the packages of a lock of npm are found by import and by require, and the tool's folder stays as it is.
func TestR2NodePackages(t *testing.T) {
	needs.Time(t, "runs npm")
	needs.Programs(t, "node", "npm")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	made := t.TempDir()
	put(t, filepath.Join(made, "acme", "package.json"), `{"name": "acme", "version": "1.0.0", "main": "main.js"}`)
	put(t, filepath.Join(made, "acme", "main.js"), `module.exports = { version: "1.0.0" };`)
	npm := func(dir string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "npm", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	npm(made, "pack", "./acme")
	from := source(t, Node, `import acme from "acme"; import "node:fs"; console.log(acme.version, (await import("acme")).default.version);`, map[string]string{
		"package.json": `{"name": "t", "version": "1.0.0", "type": "module", "scripts": {"prepare": "exit 1"}, "dependencies": {"acme": "file:` + filepath.Join(made, "acme-1.0.0.tgz") + `"}}`,
		"other.cjs":    `console.log(require("acme").version);`,
		"wrong.js":     `import "nosuchpackage";`,
	})
	from.Interpreter = node
	dir := from.Folders[0]
	npm(dir, "install", "--package-lock-only", "--offline", "--ignore-scripts")
	if err := os.Rename(from.Script, from.Script+".js"); err != nil {
		t.Fatal(err)
	}
	from.Script += ".js"
	s := store(t, t.TempDir(), "npm_config_offline=true")
	env, err := s.Build(t.Context(), detect(t, s, from), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, env, from.Script); got != "1.0.0 1.0.0" {
		t.Errorf("a module prints %q", got)
	}
	if got := output(t, env, filepath.Join(dir, "other.cjs")); got != "1.0.0" {
		t.Errorf("a script with require prints %q", got)
	}
	out, err := exec.CommandContext(t.Context(), env.Program, append(env.Args, filepath.Join(dir, "wrong.js"))...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "'nosuchpackage' imported from "+dir) {
		t.Errorf("a missing package: %v %s", err, out)
	}
	if exists(filepath.Join(dir, "node_modules")) {
		t.Error("there is a node_modules in the tool's folder")
	}
	put(t, filepath.Join(dir, "package-lock.json"), "{")
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil || !strings.Contains(err.Error(), "npm failed") {
		t.Errorf("a broken lock: %v", err)
	}
}
