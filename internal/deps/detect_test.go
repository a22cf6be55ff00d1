package deps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/deps/declared"
	"github.com/orla-project/orla/internal/deps/versions"
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

// source makes a script in a folder with further files, and returns its Source. A file that ends in / is a
// folder. Nothing is fresh, so that what is read of it is remembered.
func source(t testing.TB, language Language, text string, files map[string]string) Source {
	t.Helper()
	dir := t.TempDir()
	files["main"] = text
	past := time.Now().Add(-time.Hour)
	for name, text := range files {
		at := filepath.Join(dir, name)
		if name[len(name)-1] == '/' {
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		put(t, at, text)
		if err := os.Chtimes(at, past, past); err != nil {
			t.Fatal(err)
		}
	}
	return Source{Language: language, Script: filepath.Join(dir, "main"), Folders: []string{dir}, Interpreter: "/bin/sh"}
}

const inline = "#!/usr/bin/env python3\n# /// script\n# dependencies = [\"acme\"]\n# ///\n"

// SPEC R2: a tool has dependencies if its own files say so, and only then.
func TestR2WhatFilesDeclare(t *testing.T) {
	const project = "[project]\nname = \"p\"\ndependencies = [\n  \"acme\",\n]\n"
	for name, c := range map[string]struct {
		language   Language
		text       string
		files      map[string]string
		file, lock string // of the Need; "" for none
	}{
		"nothing":              {Python, "import acme\n", nil, "", ""},
		"a block":              {Python, inline, nil, "main", ""},
		"a block and its lock": {Python, inline, map[string]string{"main.lock": "x"}, "main", "main.lock"},
		"a block before that of the tool": {
			Python, inline + "# /// tool\n# description: x\n# ///\n", nil, "main", "",
		},
		"a text that has the key": {
			Python, "", map[string]string{"pyproject.toml": "[project]\ndescription = \"\"\"\ndependencies = \"x\"\n\"\"\"\ndependencies = [\"acme\"]\n"}, "pyproject.toml", "",
		},
		"an empty block":       {Python, "# /// script\n# dependencies = []\n# ///\n", nil, "", ""},
		"a block with options": {Python, "# /// script\n# [tool.x]\n# dependencies = [\"acme\"]\n# ///\n", nil, "", ""},
		"a block first":        {Python, inline, map[string]string{"requirements.txt": "other\n"}, "main", ""},
		"requirements":         {Python, "", map[string]string{"requirements.txt": "acme\n"}, "requirements.txt", ""},
		"only comments":        {Python, "", map[string]string{"requirements.txt": "\n# acme\n"}, "", ""},
		"a project":            {Python, "", map[string]string{"pyproject.toml": project, "requirements.txt": ""}, "pyproject.toml", ""},
		"a project's lock":     {Python, "", map[string]string{"pyproject.toml": "[project]\n", "uv.lock": "x"}, "pyproject.toml", "uv.lock"},
		"only settings":        {Python, "", map[string]string{"pyproject.toml": "[tool.ruff]\n[tool.x]\ndependencies = [1]\n"}, "", ""},
		"settings and more":    {Python, "", map[string]string{"pyproject.toml": "[tool.ruff]\n", "requirements.txt": "acme"}, "requirements.txt", ""},
		"no dependencies":      {Python, "", map[string]string{"pyproject.toml": "[project]\ndependencies = [ ]\n"}, "", ""},
		"the user's own":       {Python, inline, map[string]string{".venv/": ""}, "", ""},
		"Node in Python":       {Python, "", map[string]string{"package.json": "{}", "package-lock.json": "{}"}, "", ""},
		"Python in Node":       {Node, inline, map[string]string{"requirements.txt": "acme\n"}, "", ""},
		"npm":                  {Node, "", map[string]string{"package.json": "{}", "package-lock.json": "{}"}, "package.json", "package-lock.json"},
		"pnpm":                 {Node, "", map[string]string{"package.json": "{}", "pnpm-lock.yaml": "x"}, "package.json", "pnpm-lock.yaml"},
		"no lock":              {Node, "", map[string]string{"package.json": "{}"}, "", ""},
		"the user's modules":   {Node, "", map[string]string{"package.json": "{}", "package-lock.json": "{}", "node_modules/": ""}, "", ""},
	} {
		if c.files == nil {
			c.files = map[string]string{}
		}
		need, err := new(Files).Detect(source(t, c.language, c.text, c.files))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		base := func(path string) string {
			if path == "" {
				return ""
			}
			return filepath.Base(path)
		}
		if base(need.File) != c.file || base(need.Lock) != c.lock || need.IsZero() != (c.file == "") {
			t.Errorf("%s: got file %q, lock %q, digest %q; want file %q, lock %q", name, need.File, need.Lock, need.Digest, c.file, c.lock)
		}
	}
}

// SPEC R2: what cannot be understood is said, and nothing is installed.
func TestR2BrokenDeclarations(t *testing.T) {
	for name, s := range map[string]Source{
		"a block without an end":    source(t, Python, "# /// script\n# dependencies = [\"acme\"]\nimport acme\n", map[string]string{}),
		"a text as dependencies":    source(t, Python, "# /// script\n# dependencies = \"acme\"\n# ///\n", map[string]string{}),
		"a text in a project":       source(t, Python, "", map[string]string{"pyproject.toml": "[project]\ndependencies = 'acme'\n"}),
		"two blocks":                source(t, Python, inline+"\n"+inline, map[string]string{}),
		"an included file is gone":  source(t, Python, "", map[string]string{"requirements.txt": "-r other.txt\n"}),
		"a folder as requirements":  source(t, Python, "", map[string]string{"requirements.txt/": ""}),
		"a folder as a lock":        source(t, Node, "", map[string]string{"package.json": "{}", "package-lock.json/": ""}),
		"the interpreter has gone":  {Language: Python, Script: source(t, Python, inline, map[string]string{}).Script, Interpreter: "/nowhere"},
		"the script itself is gone": {Language: Python, Script: "/nowhere", Interpreter: "/bin/sh"},
	} {
		if need, err := new(Files).Detect(s); err == nil {
			t.Errorf("%s: no error, and %+v is needed", name, need)
		}
	}
}

// SPEC R3: equal declarations have the same environment wherever they are, and any difference makes another.
func TestR3Digests(t *testing.T) {
	files := func() map[string]string {
		return map[string]string{"requirements.txt": "-r more.txt\nacme\n", "more.txt": "-c limits.txt\n", "limits.txt": "acme<2\n"}
	}
	digest := func(s Source) string {
		need, err := new(Files).Detect(s)
		if err != nil {
			t.Fatal(err)
		}
		return need.Digest
	}
	first := source(t, Python, "print(1)\n", files())
	if digest(first) != digest(source(t, Python, "print(2)\n", files())) {
		t.Error("two tools with equal dependencies have different environments")
	}
	seen := map[string]string{digest(first): "nothing"}
	for name, change := range map[string]func(*Source, map[string]string){
		"requirements":      func(_ *Source, f map[string]string) { f["requirements.txt"] += "other\n" },
		"an included file":  func(_ *Source, f map[string]string) { f["more.txt"] += "other\n" },
		"a constraint":      func(_ *Source, f map[string]string) { f["limits.txt"] += "other<1\n" },
		"the interpreter":   func(s *Source, _ map[string]string) { s.Interpreter = "/bin/ls" },
		"the setup command": func(s *Source, _ map[string]string) { s.Command = []string{"make"} },
	} {
		with := files()
		s := Source{Interpreter: "/bin/sh"}
		change(&s, with)
		made := source(t, Python, "", with)
		made.Interpreter, made.Command = s.Interpreter, s.Command
		if other := seen[digest(made)]; other != "" {
			t.Errorf("another %s: the digest is that of %s", name, other)
		}
		seen[digest(made)] = name
	}
}

// SPEC R5: unchanged dependencies cost at most 5 ms per start, however long the lock is; and a change is seen.
func TestR5UnchangedDependenciesCostLittle(t *testing.T) {
	lock := make([]byte, 4<<20)
	s := source(t, Node, "", map[string]string{"package.json": "{}", "package-lock.json": string(lock)})
	var files Files
	before, err := files.Detect(s)
	if err != nil {
		t.Fatal(err)
	}
	least := time.Hour
	for range 20 {
		began := time.Now()
		if need, err := files.Detect(s); err != nil || need.Digest != before.Digest {
			t.Fatal(need, err)
		}
		least = min(least, time.Since(began))
	}
	if least > 5*time.Millisecond {
		t.Errorf("unchanged dependencies cost %s", least)
	}
	if allocated := testing.AllocsPerRun(10, func() { _, _ = files.Detect(s) }); allocated > 200 {
		t.Errorf("a look at unchanged files allocates %g times", allocated)
	}
	put(t, filepath.Join(filepath.Dir(s.Script), "package-lock.json"), "{}")
	if after, err := files.Detect(s); err != nil || after.Digest == before.Digest {
		t.Errorf("a change is not seen: %v", err)
	}
}

// SPEC R2: the versions that requires-python allows.
func TestR2RequiresPython(t *testing.T) {
	for specification, want := range map[string][2]bool{
		">=3.9": {true, true}, ">=3.12": {false, true}, "<4,>=3.8": {true, true}, "==3.11.*": {true, true}, "==3.10.*": {false, true},
		"~=3.10": {true, true}, "~=3.11.0": {true, true}, "~=3.10.0": {false, true}, "!=3.11.2": {false, true}, ">3.11": {true, true},
		">=3.8a1": {false, false}, "": {false, false}, "3.11": {false, false}, "===3.11": {false, false}, "<=3.11": {false, true},
	} {
		if ok, known := versions.Compare("3.11.2", specification); [2]bool{ok, known} != want {
			t.Errorf("3.11.2 for %q: %v, known %v; want %v", specification, ok, known, want)
		}
	}
}

// SPEC R5: what each start of a tool costs whose environment is there.
func BenchmarkR5Unchanged(b *testing.B) {
	from := source(b, Python, inline, map[string]string{})
	from.Command = []string{"sh", "-c", "true"}
	tool := store(b, b.TempDir()).Tool(from)
	if err := tool.Install(b.Context(), quiet); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if tool.Missing() {
			b.Fatal("it is missing")
		}
	}
}

// SPEC R6: two installed packages never share an environment.
func TestR6PackagesShareNoEnvironment(t *testing.T) {
	from := source(t, Python, "", map[string]string{"requirements.txt": "six\n"})
	seen := map[string]bool{}
	for _, of := range []string{"", "a h1:x", "b h1:x", "a h1:y"} {
		from.Package = of
		need, err := new(Files).Detect(from)
		if err != nil || seen[need.Digest] {
			t.Errorf("%q has the environment of another package: %v", of, err)
		}
		seen[need.Digest] = true
	}
}

// SPEC S2: Orla itself does not parse more of what a package asks for than it has memory for.
func TestS2WhatPackagesAskForIsBounded(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("#\n", declared.MostBytes/2+1)
	put(t, filepath.Join(dir, "package.json"), `{"description": "`+long+`"}`)
	if _, err := new(Files).Detect(Source{Script: filepath.Join(dir, "main.js"), Language: Node, Interpreter: "/bin/sh", Folders: []string{dir}}); err == nil || !strings.Contains(err.Error(), "package.json has over 4194304 bytes") {
		t.Errorf("package.json: %.300v", err)
	}
}
