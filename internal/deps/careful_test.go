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

// SPEC R6: a requirements.txt of a package from elsewhere names packages of indexes, and nothing else.
func TestR6RequirementsAreNamesAndVersions(t *testing.T) {
	indexes := []string{"https://index.example.com/simple/"}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "more.txt"), "more\n")
	put(t, filepath.Join(dir, "below", "less.txt"), "less<2\n")
	file := filepath.Join(dir, "requirements.txt")
	for text, want := range map[string]string{
		"six":                                   "six",
		"\n# a comment\nsix >= 1 , <2 # more\n": "six>= 1 , <2",
		"a[b, c]~=1.0 ; python_version < '3.9' and sys_platform == \"linux\"\r\nd": "a[b, c]~=1.0 ; python_version < '3.9' and sys_platform == \"linux\"|d",
		"six==1 \\\n    --hash=sha256:0a \\\n    --hash=sha256:0b\n    # via p\n":  "six==1 --hash=sha256:0a --hash=sha256:0b",
		"-r more.txt\n--constraint below/less.txt":                                 "more|-c less<2",
		"--index-url https://index.example.com/simple\nsix":                        "six",
	} {
		put(t, file, text)
		a, err := readRequirements(dir, file, indexes)
		got := slices.Clone(a.required)
		for _, line := range a.constraints {
			got = append(got, "-c "+line)
		}
		if strings.Join(got, "|") != want || err != nil {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	put(t, filepath.Join(filepath.Dir(dir), "outside.txt"), "x\n")
	if err := os.Symlink("../outside.txt", filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"-e ./evil", "--editable=./evil", "./evil", "evil/", "evil-1-py3-none-any.whl", "./x.whl", "x.tar.gz", "../x", "/x", "~/x",
		"x @ https://example.com/x", "x @ file:///x", "x@./y", "git+https://example.com/x", "https://example.com/x.whl", "file:x",
		"--index-url http://127.0.0.1/${SECRET}/simple", "-i https://example.com/simple", "--extra-index-url https://example.com", "--find-links /x", "-f /x",
		"--no-binary :all:", "--no-index", "--pre", "--trusted-host x", "--config-settings x", "x --no-binary=:all:", "x --config-settings=a=b",
		"x; python_version > '3' --no-binary=x", "$X", "${X}", "x==${X}", "x; y == '$Z'", "-r ../outside.txt", "-r /etc/passwd", "-r link.txt", "-r https://example.com/x", "-c ${X}",
		"six\r-e ./evil", "\ufeffsix", "six\f", "six\x00", "six\v-e x", "six\x1c", "six\u0085x", "six\u2028-e x", "\xff", "six \\\n-e ./evil", "six \\", "x ; y == 'a/b'", "x --hash=md5:0",
	} {
		put(t, file, "six\n"+line)
		a, err := readRequirements(dir, file, indexes)
		if err == nil || !strings.Contains(err.Error(), ".txt") {
			t.Errorf("%q: got %q, %v", line, a, err)
		}
		if _, err := readExported("uv.lock", "six==1 --hash=sha256:00\n"+line); err == nil {
			t.Errorf("of a lock, %q is installed", line)
		}
		if one := strings.ReplaceAll(strings.ReplaceAll(line, `\`, `\\`), "\n", `\n`); !strings.Contains(line, `"`) {
			if d, err := readTable([]byte("dependencies = [\"six\", \"" + one + "\"]\n")); err == nil && line != "six\f" {
				t.Errorf("of a project, %q is %q", line, d.required)
			}
		}
	}
	for _, line := range []string{"six", "six==1", "six>=1 --hash=sha256:00"} {
		if _, err := readExported("uv.lock", line); err == nil {
			t.Errorf("of a lock, %q is installed", line)
		}
	}
	put(t, file, "six\n\n./evil\n")
	if _, err := readRequirements(dir, file, indexes); err == nil || !strings.HasPrefix(err.Error(), file+":3: ") || !strings.Contains(err.Error(), "scripts: true") {
		t.Errorf("the error is %v", err)
	}
}

// SPEC R6: a table of a project is read strictly.
func TestR6TablesAreReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"dependencies = []\n": "",
		"dependencies = [ # c\n  \"a>=1\", # d\n  'b',\n]\nx = [1]\n":                     "a>=1|b",
		"description = \"\"\"\ndependencies = [\"evil\"]\n\"\"\"\ndependencies = [\"a\"]": "a",
		"dependencies = [\"a; python_version < '3'\"]":                                    "a ; python_version < '3'",
	} {
		d, err := readTable([]byte(text))
		if strings.Join(d.required, "|") != want || err != nil {
			t.Errorf("%q: got %q, %v", text, d.required, err)
		}
	}
	for _, text := range []string{
		"dependencies = x", "dependencies = [", "dependencies = [\"a\" \"b\"]", "dependencies = [\"\"\"a\"\"\"]", "dependencies = [\"\\u0061\"]", "dependencies = [\"a]",
		"dependencies = [\"a\"]\ndependencies = [\"b\"]", "dependencies = [[\"a\"]]", "dependencies = [1]", "requires-python = \"\"\">=3\"\"\"", "'requires-python' = x",
	} {
		if d, err := readTable([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, d)
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
