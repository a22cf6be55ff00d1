package deps

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// brokenOf returns declarations that no installer can follow, by the name of their file. whole is a declaration that can
// be followed.
func brokenOf(whole map[string]string) (list [][2]string) {
	add := func(name string, texts ...string) {
		for _, text := range texts {
			list = append(list, [2]string{name, text})
		}
	}
	for _, line := range []string{
		"acme=>1", "acme==", "acme==9.9", "acme=1", "acme @", "acme[", "acme[x", "acme==1.0.*.*", "acme ; python_version", "acme ; nonsense == 1", "nosuchpackage", "acme nosuchpackage",
		"-r", "-r missing.txt", "-c missing.txt", "-r .", "--bogus", "-e .", "-e ./missing", "./missing", "missing.whl", "acme @ file:///missing.whl", "acme-9-py3-none-any.whl",
		"acme==1.0 --hash=sha256:" + strings.Repeat("0", 64), "\x00", "\xff\xfe", "<<<<<<< HEAD", "acme\n=======\nacme==2.0\n>>>>>>> theirs", "{", "[project]", "import acme", "acme==1.0\nacme==2.0", "# x\n\x01", "gadget\nacme==2.0",
	} {
		add("requirements.txt", line+"\n")
	}
	project := whole["pyproject.toml"]
	for at := range 30 {
		at = len(project) * at / 30
		add("pyproject.toml", project[:at]+"\x01"+project[at:])
	}
	for _, line := range []string{`acme=>1`, `acme==9.9`, `nosuchpackage`, `acme[`, `{`, `acme @ file:///missing`} {
		add("pyproject.toml", strings.Replace(project, `"acme<2"`, `"`+line+`"`, 1))
	}
	block := whole["main"]
	first, last := strings.Index(block, "dependencies"), strings.LastIndex(block, "# ///")
	for at := range 20 {
		at = first + (last-first)*at/20
		add("main", block[:at]+"\x01"+block[at:])
	}
	add("main", strings.Replace(block, "# ///\nimport", "import", 1), strings.Replace(block, "# ///\nimport", "\n# ///\nimport", 1), block+block)
	lock := whole["package-lock.json"]
	for at := range 10 {
		add("package-lock.json", lock[:len(lock)*at/10])
	}
	return list
}

// SPEC R4: a hundred broken declarations: none takes away what the tool runs with.
func TestR4AHundredBrokenDeclarations(t *testing.T) {
	needs.Time(t, "runs an installer for each of them")
	needs.Programs(t, "uv", "npm", "node")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{
		"requirements.txt":  "acme<2\n",
		"pyproject.toml":    "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\"acme<2\"]\n",
		"main":              "# /// script\n# requires-python = \">=3.8\"\n# dependencies = [\"acme<2\"]\n# ///\n" + printsVersion,
		"package-lock.json": `{"name": "t", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": {"name": "t", "version": "1.0.0"}}}`,
	}
	s := store(t, t.TempDir(), append(offline(t), "npm_config_offline=true")...)
	tools, texts, before := map[string]*Tool{}, map[string]string{}, map[string]string{}
	for name, text := range whole {
		texts[name] = printsVersion
		files := map[string]string{name: text}
		language, interpreter := Python, python(t)
		switch name {
		case "main":
			texts[name], files = text, map[string]string{}
		case "package-lock.json":
			language, interpreter, texts[name] = Node, node, "console.log('1.0')\n"
			files["package.json"] = `{"name": "t", "version": "1.0.0"}`
		}
		from := source(t, language, texts[name], files)
		from.Interpreter = interpreter
		tools[name] = s.Tool(from)
		if err := tools[name].Install(t.Context(), quiet); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		env, _ := tools[name].Env()
		before[name] = env.Dir
	}
	list := brokenOf(whole)
	if len(list) < 100 {
		t.Errorf("there are %d", len(list))
	}
	for i, c := range list {
		name, tool := c[0], tools[c[0]]
		put(t, filepath.Join(tool.source.Folders[0], name), c[1])
		what := fmt.Sprintf("%d, %s %q", i, name, c[1])
		if tool.Retry(); !tool.Missing() { // an error that is the same as before
			t.Errorf("%s: nothing is missing", what)
		} else if err := tool.Install(t.Context(), quiet); err == nil {
			t.Errorf("%s: it is installed", what)
		}
		if env, _ := tool.Env(); env.Dir != before[name] || tool.Missing() {
			t.Fatalf("%s: it runs with %q", what, env.Dir)
		}
	}
	for name, tool := range tools {
		env, _ := tool.Env()
		script := filepath.Join(t.TempDir(), "main.mjs")
		put(t, script, texts[name])
		if got := output(t, env, script); got != "1.0" {
			t.Errorf("%s: it prints %q", name, got)
		}
	}
}
