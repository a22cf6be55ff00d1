package declared

import (
	"path/filepath"
	"strings"
	"testing"
)

// SPEC R6: of a pyproject.toml and of a PEP 723 block, the name, the versions and the packages count, and nothing else. Sources and
// indexes of their own are refused, unless a lock says where packages are from.
func TestR6ProjectsAndScripts(t *testing.T) {
	dir := t.TempDir()
	const own = "\n[tool.uv.sources]\nsix = { path = \"../six\" }\n"
	for _, c := range []struct {
		file, text, lock string
		want             string // the project; "" for an error
		err              string
	}{
		{"pyproject.toml", "[build-system]\nrequires = [\"evil\"]\n[project]\nname = \"a\"\nrequires-python = \">=3.9\"\ndependencies = [\"six>=1\"]\n[project.scripts]\ndependencies = [\"evil\"]\n", "", "[project]\nname = \"a\"\nversion = \"0\"\nrequires-python = \">=3.9\"\ndependencies = [\n  \"six>=1\",\n]\n", ""},
		{"pyproject.toml", "dependencies = [\"evil\"]\n", "", "[project]\nname = \"\"\nversion = \"0\"\ndependencies = [\n]\n", ""},
		{"pyproject.toml", "[project]\ndependencies = [\"a; python_version < \\\"3\\\"\"]\n", "", "", "pyproject.toml: dependencies is not a list of plain texts"},
		{"pyproject.toml", "[project]\ndependencies = ['a; python_version < \"3\"']\n", "", "[project]\nname = \"\"\nversion = \"0\"\ndependencies = [\n  \"a ; python_version < \\\"3\\\"\",\n]\n", ""},
		{"pyproject.toml", "[project]\n" + own, "", "", "has sources or indexes of its own"},
		{"pyproject.toml", "[project]\n" + own, "uv.lock", "[project]\nname = \"\"\nversion = \"0\"\ndependencies = [\n]\n", ""},
		{"main.py", "dependencies = [\"six\"]\n[tool.x]\ndependencies = [\"evil\"]\n", "", "[project]\nname = \"\"\nversion = \"0\"\ndependencies = [\n  \"six\",\n]\n", ""},
		{"main.py", "dependencies = [\"six\"]" + own, "", "", "main.py: tool.uv has sources"},
		{"main.py", "dependencies = [\"six\"]" + own, "main.py.lock", "[project]\nname = \"\"\nversion = \"0\"\ndependencies = [\n  \"six\",\n]\n", ""},
		{"main.py", "# \u2028\ndependencies = [\"six\"]\n", "", "", "main.py: has the character U+2028"},
	} {
		f := Files{Root: dir, File: filepath.Join(dir, c.file), Lock: c.lock}
		if put(t, f.File, c.text); c.file == "main.py" {
			f.Block = []byte(c.text)
		}
		p, err := f.Python(nil)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %+v, %v; want %s", c.text, p, err, c.err)
			}
			continue
		}
		if got := p.Project(); err != nil || got != c.want {
			t.Errorf("%q with the lock %q: %q, %v; want %q", c.text, c.lock, got, err, c.want)
		}
		if got := p.Script(); err == nil && (!strings.HasPrefix(got, "# /// script\n# ") || !strings.HasSuffix(got, "\n# ]\n# ///\n") || strings.Contains(got, "\nd") || strings.Contains(got, "[project]")) {
			t.Errorf("%q as a script: %q", c.text, got)
		}
	}
}

// SPEC R6: a lock has to have the packages that every machine needs, whatever their names are written like.
func TestR6ALockHasWhatIsNeeded(t *testing.T) {
	has := Packages{Required: []string{"Ruamel.yaml==1", "typing_extensions==4"}}
	for needed, want := range map[string]string{
		"ruamel-YAML>=1": "", "Typing.Extensions": "", "other ; python_version < '3'": "", "other": "other", "ruamel": "ruamel",
	} {
		if got := has.Lacks([]string{"typing-extensions", needed}); got != want {
			t.Errorf("%s: it lacks %q, want %q", needed, got, want)
		}
	}
}

// SPEC R2: what is said of a table that the installer reads itself.
func TestR2TablesForTheInstaller(t *testing.T) {
	for text, has := range map[string]bool{"dependencies = []": false, "dependencies = [ \n ]": false, "dependencies = [\"a\"]": true, "x = 1": false, "optional-dependencies = [\"a\"]": false} {
		if got := HasDependencies([]byte(text)); got != has {
			t.Errorf("%q has dependencies: %v", text, got)
		}
	}
	for text, wrong := range map[string]bool{"dependencies = \"six\"": true, "dependencies = ['six']": false, "x = \"\"\"\ndependencies = \"six\"\n\"\"\"": false} {
		if err := CheckList([]byte(text)); (err != nil) != wrong || wrong && !strings.HasSuffix(err.Error(), "dependencies = [\"six\"]") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := RequiresPython([]byte("requires-python = '>=3.9'")); got != ">=3.9" {
		t.Errorf("it requires %q", got)
	}
}

// SPEC R6: what is not known to be harmless does not get to the installer.
func TestR6NothingElseOfALockIsHandedOn(t *testing.T) {
	const lock = "lockfileVersion: '9.0'\nsettings: {autoInstallPeers: true, evil: x}\nimporters: {.: {dependencies: {x: {specifier: ^1.0.0, version: 1.0.0, evil: x}}, evil: {}}}\npackages: {}\n"
	made, err := lockOfPNPM([]byte(lock), nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range made {
		if strings.Contains(string(value), "evil") {
			t.Errorf("%s is %s", key, value)
		}
	}
	dir := t.TempDir()
	f := Files{Root: dir, File: filepath.Join(dir, "package.json"), Lock: filepath.Join(dir, "package-lock.json")}
	for _, key := range []string{"workspaces", "overrides", "resolutions", "pnpm"} {
		put(t, f.File, `{"`+key+`": {}}`)
		if _, err := f.Node(); err == nil || !strings.Contains(err.Error(), "package.json has "+key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
