package deps

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/deps/versions"
	"github.com/orla-project/orla/internal/testing/needs"
)

// fakeUV returns a folder with a program uv, and the file in which that notes how it was run.
func fakeUV(t *testing.T) (dir, log string) {
	t.Helper()
	dir, log = t.TempDir(), filepath.Join(t.TempDir(), "log")
	put(t, filepath.Join(dir, "uv"), `#!/bin/sh
{ echo "ARGS $*"; echo "IN $(pwd -P)"; ls -A; env; } >>'`+log+`'
case $1 in
venv) mkdir -p "$ORLA_ENV/bin"; echo x >"$ORLA_ENV/bin/python" ;;
export) cat export 2>/dev/null || printf 'six==1 --hash=sha256:00\n' ;;
esac
`)
	if err := os.Chmod(filepath.Join(dir, "uv"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, log
}

// SPEC R6: the installer of a package from elsewhere sees no file of it but those that count, runs in another folder, has
// few of Orla's variables, and runs nothing of what it installs.
func TestR6InstallersSeeLittle(t *testing.T) {
	needs.Time(t, "runs installers")
	const project = "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.0\"\ndependencies = [\"six\"]\n"
	traps := map[string]string{"uv.toml": "x\n", ".python-version": "./evil\n", "evil": "#!/bin/sh\n", "pip.conf": "x\n"}
	for name, files := range map[string]map[string]string{
		"requirements": {"requirements.txt": "-r more.txt\n", "more.txt": "six\n"},
		"a project":    {"pyproject.toml": project + "[tool.uv]\npython-install-mirror = \"x\"\n"},
		"a lock":       {"pyproject.toml": project, "uv.lock": "version = 1\n"},
	} {
		uv, log := fakeUV(t)
		maps.Copy(files, traps)
		from := source(t, Python, printsVersion, files)
		from.Interpreter, from.NoScripts = python(t), true
		s := store(t, t.TempDir(), "PATH="+uv+":/usr/bin:/bin", "MY_SECRET=topsecret", "UV_PYTHON_DOWNLOADS=automatic", "UV_INDEX_X_PASSWORD=p")
		if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, wrong := range []string{"uv.toml", ".python-version", "evil", "pip.conf", "MY_SECRET=topsecret", "UV_PYTHON_DOWNLOADS=automatic", "UV_COMPILE_BYTECODE=1", "IN " + from.Folders[0]} {
			if slices.Contains(lines, wrong) {
				t.Errorf("%s: an installer sees %s", name, wrong)
			}
		}
		for _, right := range []string{"UV_NO_CONFIG=1", "UV_PYTHON_DOWNLOADS=never", "UV_COMPILE_BYTECODE=0", "UV_LINK_MODE=copy", "UV_INDEX_X_PASSWORD=p"} {
			if !slices.Contains(lines, right) {
				t.Errorf("%s: an installer does not have %s", name, right)
			}
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "ARGS ") && (strings.Contains(line, from.Folders[0]) || !strings.Contains(line, "--python")) {
				t.Errorf("%s: an installer is run as %s", name, line)
			}
		}
	}
}

// SPEC R6: requires-python is handed on if it is a list of versions, and is nothing that uv takes for a path.
func TestR6RequiresPythonIsVersions(t *testing.T) {
	for text, want := range map[string]string{
		">=3.8": ">=3.8", " >= 3.8 , <4": ">=3.8,<4", "==3.11.*": "==3.11.*", "~=3.10": "~=3.10", "!=3.9.*,>3": "!=3.9.*,>3",
		"<3,x/python": "", "./evil": "", "3.8": "", "": "", ">=3.8,": "", "===3.8": "", ">=3.8.*": "", ">=3.8a1": "", "pypy": "", ">=3\n/x": "",
	} {
		if got, err := versions.OfPython(text); got != want || (err == nil) == (want == "") {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	uv, log := fakeUV(t)
	for name, from := range map[string]Source{
		"a project": source(t, Python, "", map[string]string{"pyproject.toml": "[project]\nname = \"p\"\nrequires-python = \"<3,x/python\"\ndependencies = [\"six\"]\n"}),
		"a block":   source(t, Python, "# /// script\n# requires-python = \"<3,x/python\"\n# dependencies = [\"six\"]\n# ///\n", map[string]string{}),
	} {
		from.Interpreter, from.NoScripts = python(t), true
		s := store(t, t.TempDir(), "PATH="+uv+":/usr/bin:/bin")
		if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil || !strings.Contains(err.Error(), "requires-python") || exists(log) {
			t.Errorf("%s: %v, and uv was run: %v", name, err, exists(log))
		}
	}
}

// SPEC R6: what a wheel runs when its environment's Python starts does not run while it is installed, and the lock of uv is
// installed with its hashes.
func TestR6NothingOfAnEnvironmentRuns(t *testing.T) {
	needs.Programs(t, "uv")
	made, mark := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	script := "import zipfile\nz = zipfile.ZipFile('acme-1.0-py3-none-any.whl', 'w')\n" +
		"z.writestr('acme.py', 'version = 1\\n')\nz.writestr('acme.pth', 'import os; open(\"" + mark + "\", \"w\").close()\\n')\n" +
		"z.writestr('acme-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: acme\\nVersion: 1.0\\n')\n" +
		"z.writestr('acme-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n" +
		"z.writestr('acme-1.0.dist-info/RECORD', '')\nz.close()\n" +
		"import hashlib; print(hashlib.sha256(open('acme-1.0-py3-none-any.whl', 'rb').read()).hexdigest())\n"
	cmd := exec.CommandContext(t.Context(), python(t), "-c", script)
	cmd.Dir = made
	sum, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	hash := strings.TrimSpace(string(sum))
	lock := func(hash string) string {
		return "version = 1\nrevision = 3\nrequires-python = \">=3.8\"\n[[package]]\nname = \"acme\"\nversion = \"1.0\"\nsource = { registry = \"https://pypi.org/simple\" }\n" +
			"wheels = [{ url = \"https://files.pythonhosted.org/acme-1.0-py3-none-any.whl\", hash = \"sha256:" + hash + "\", size = 1 }]\n" +
			"[[package]]\nname = \"p\"\nversion = \"1\"\nsource = { virtual = \".\" }\ndependencies = [{ name = \"acme\" }]\n[package.metadata]\nrequires-dist = [{ name = \"acme\" }]\n"
	}
	project := "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\"acme\"]\n"
	for name, c := range map[string]struct {
		files map[string]string
		fails string
	}{
		"requirements":     {map[string]string{"requirements.txt": "acme\n"}, ""},
		"a lock":           {map[string]string{"pyproject.toml": project, "uv.lock": lock(hash)}, ""},
		"another hash":     {map[string]string{"pyproject.toml": project, "uv.lock": lock(strings.Repeat("0", 64))}, "acme"},
		"a lock that lags": {map[string]string{"pyproject.toml": strings.Replace(project, `"acme"`, `"acme", "other"`, 1), "uv.lock": lock(hash)}, "does not have other"},
	} {
		from := source(t, Python, "import acme; print(acme.version)\n", c.files)
		from.Interpreter, from.NoScripts = python(t), true
		s := store(t, t.TempDir(), "UV_FIND_LINKS="+made, "UV_NO_INDEX=1", "UV_OFFLINE=1", "UV_CACHE_DIR="+t.TempDir())
		env, err := s.Build(t.Context(), detect(t, s, from), quiet)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if exists(mark) {
			t.Errorf("%s: code of a wheel has run", name)
		}
		if got := output(t, env, from.Script); got != "1" || !exists(mark) {
			t.Errorf("%s: it prints %q, and its code has run: %v", name, got, exists(mark))
		}
		_ = os.Remove(mark)
	}
}
