package declared

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// put writes a file, and makes its folder.
func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
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
		got := slices.Clone(a.Required)
		for _, line := range a.Constraints {
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
		if _, err := Exported("uv.lock", "six==1 --hash=sha256:00\n"+line); err == nil {
			t.Errorf("of a lock, %q is installed", line)
		}
		if one := strings.ReplaceAll(strings.ReplaceAll(line, `\`, `\\`), "\n", `\n`); !strings.Contains(line, `"`) {
			if d, err := readTable([]byte("dependencies = [\"six\", \"" + one + "\"]\n")); err == nil && line != "six\f" {
				t.Errorf("of a project, %q is %q", line, d.Required)
			}
		}
	}
	for _, line := range []string{"six", "six==1", "six>=1 --hash=sha256:00"} {
		if _, err := Exported("uv.lock", line); err == nil {
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
		if strings.Join(d.Required, "|") != want || err != nil {
			t.Errorf("%q: got %q, %v", text, d.Required, err)
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
