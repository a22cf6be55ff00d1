package bundle_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/testing/needs"
)

// aBundle writes an MCP bundle and returns its file.
func aBundle(t testing.TB, files map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, text := range files {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "x.mcpb")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// imported imports a bundle, with answers to its questions.
func imported(t testing.TB, files map[string]string, answers map[string]string) (dir string, m *bundle.Made, err error) {
	t.Helper()
	file := aBundle(t, files)
	dir = t.TempDir()
	m, err = bundle.Import(t.Context(), file, dir, answers, origin.Limits{})
	var unanswered *bundle.UnansweredError
	if answers == nil && m != nil && (errors.As(err, &unanswered) || len(m.Questions) > 0) {
		dir = t.TempDir()
		m, err = bundle.Import(t.Context(), file, dir, answersTo(m.Questions), origin.Limits{})
	}
	return dir, m, err
}

// SPEC M3: the bundles of real servers become capsules, and those that would fetch other code at each start do not.
func TestM3RealBundles(t *testing.T) {
	text, err := os.ReadFile("testdata/manifests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	good, all := 0, 0
	for line := range strings.Lines(string(text)) {
		var m struct {
			Name   string
			Server struct {
				EntryPoint string `json:"entry_point"`
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{"manifest.json": line}
		if entry := strings.TrimPrefix(m.Server.EntryPoint, "./"); !strings.HasPrefix(entry, "@") {
			files[entry] = "#!/bin/sh\n"
		}
		all++
		dir, _, err := imported(t, files, nil)
		if err == nil {
			err = validPackage(dir)
		}
		if err != nil {
			t.Logf("%s: %v", m.Name, err)
			if !strings.Contains(err.Error(), "may fetch other code") && !strings.Contains(err.Error(), "is for darwin, and not for") {
				t.Errorf("%s: another reason: %v", m.Name, err)
			}
			continue
		}
		good++
	}
	if t.Logf("%d of %d", good, all); good < all-2 {
		t.Errorf("only %d of %d bundles can be used", good, all)
	}
}

const aManifest = `{"manifest_version":"0.4","name":"thing","version":"1.0.0","description":"x","author":{"name":"a"},"server":{"type":"TYPE","entry_point":"ENTRY","mcp_config":{"command":"COMMAND","args":[ARGS],"env":{ENV}}},
"user_config":{"token":{"type":"string","title":"Token","sensitive":true,"required":true},"dirs":{"type":"directory","multiple":true,"default":["/a","/b"]},"level":{"type":"number","min":1,"max":9,"default":3},"maybe":{"type":"string"},"on":{"type":"boolean","default":false}}}`

func manifestOf(kind, entry, command, args, env string) string {
	return strings.NewReplacer("TYPE", kind, "ENTRY", entry, "COMMAND", command, "ARGS", args, "ENV", env).Replace(aManifest)
}

// SPEC M3: all four types of servers become capsules that run in the process that Orla starts. Answers become arguments and
// variables, and secrets are in a Secret alone.
func TestM3BundlesOfAllTypes(t *testing.T) {
	needs.Time(t, "runs Node and Python")
	needs.Programs(t, "node", "python3")
	const args = `"--token","t=${user_config.token}","${user_config.dirs}","--level=${user_config.level}","${user_config.maybe}","it's \"$(x) ${/}","${__dirname}/x"`
	const env = `"TOKEN":"${user_config.token}","LEVEL":"${user_config.level}","MAYBE":"${user_config.maybe}","HERE":"${__dirname}/lib","ON":"${user_config.on}"`
	node := `console.log(JSON.stringify([process.argv.slice(2), process.env.TOKEN, process.env.LEVEL, process.env.MAYBE ?? null, process.env.HERE, process.env.ON]))`
	python := "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['TOKEN'], os.environ['LEVEL'], os.environ.get('MAYBE'), os.environ['HERE'], os.environ['ON']]))\n"
	shell := "#!/bin/sh\nexec python3 - \"$@\" <<'EOF'\n" + python + "EOF\n"
	for name, c := range map[string]struct {
		files map[string]string
	}{
		"node":            {map[string]string{"manifest.json": manifestOf("node", "server/index.js", "node", `"${__dirname}/server/index.js",`+args, env), "server/index.js": node}},
		"node, options":   {map[string]string{"manifest.json": manifestOf("node", "server/index.js", "node", `"--no-warnings","${__dirname}/server/index.js",`+args, env), "server/index.js": node}},
		"node, npx":       {map[string]string{"manifest.json": manifestOf("node", "server/index.js", "npx", `"-y","thing",`+args, env), "server/index.js": node}},
		"python":          {map[string]string{"manifest.json": manifestOf("python", "server/main.py", "python", `"${__dirname}/server/main.py",`+args, env), "server/main.py": "import beside\n" + python, "server/beside.py": ""}},
		"python, module":  {map[string]string{"manifest.json": manifestOf("python", "lib/thing/__main__.py", "python3.11", `"-m","thing",`+args, `"PYTHONPATH":"${__dirname}/lib",`+env), "lib/thing/__main__.py": python, "lib/thing/__init__.py": ""}},
		"binary":          {map[string]string{"manifest.json": manifestOf("binary", "bin/x", "${__dirname}/bin/x", args, env), "bin/x": shell}},
		"uv, file":        {map[string]string{"manifest.json": manifestOf("uv", "src/main.py", "uv", `"run","--directory","${__dirname}","src/main.py",`+args, env), "src/main.py": python, "pyproject.toml": "[project]\nname='thing'\n"}},
		"uv, no command":  {map[string]string{"manifest.json": strings.Replace(manifestOf("uv", "src/main.py", "", args, env), `"command":"",`, "", 1), "src/main.py": python}},
		"uv, python":      {map[string]string{"manifest.json": manifestOf("uv", "src/main.py", "uv", `"run","--project=${__dirname}","python","${__dirname}/src/main.py",`+args, env), "src/main.py": python}},
		"with its folder": {map[string]string{"x/manifest.json": manifestOf("node", "server/index.js", "node", `"${__dirname}/server/index.js",`+args, env), "x/server/index.js": node}},
	} {
		dir, m, err := imported(t, c.files, map[string]string{"token": `it's "$HOME"`})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := validPackage(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		entry := ""
		for _, file := range []string{"orla-run", "orla-run.cjs", "orla_run.py"} {
			if _, there := m.Files[file]; there {
				entry = file
			}
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, entry))
		cmd.Dir = "/"
		cmd.Env = os.Environ()
		for key, value := range m.Secrets {
			cmd.Env = append(cmd.Env, key+"="+value)
		}
		if strings.Contains(m.Files["tool.yaml"]+m.Files[entry], "$HOME") || len(m.Secrets) != 2 {
			t.Errorf("%s: the secrets are %v", name, m.Secrets)
		}
		out, err := cmd.CombinedOutput()
		var got, want any
		wanted, _ := json.Marshal([]any{[]string{"--token", `t=it's "$HOME"`, "/a", "/b", "--level=3", `it's "$(x) /`, dir + "/x"}, `it's "$HOME"`, "3", nil, dir + "/lib", "false"})
		if err := errors.Join(err, json.Unmarshal(out, &got), json.Unmarshal(wanted, &want)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v: %s, want %s", name, err, out, wanted)
		}
	}
}

// SPEC M3: a bundle of uv may run a program of its own project, which is not installed.
func TestM3BundlesRunTheProgramsOfTheirProject(t *testing.T) {
	needs.Time(t, "runs Python")
	needs.Programs(t, "python3")
	if exec.CommandContext(t.Context(), "python3", "-c", "import tomllib").Run() != nil {
		needs.Missing(t, "python3 is older than 3.11")
	}
	dir, m, err := imported(t, map[string]string{
		"manifest.json":         strings.Replace(manifestOf("uv", "src/thing/__init__.py", "uv", `"run","--with","thing","thing-serve","--x"`, ""), `"required":true`, `"required":false`, 1),
		"pyproject.toml":        "[project]\nname = 'thing'\nversion = '1'\n[project.scripts]\nthing-serve = 'thing:main'\n",
		"src/thing/__init__.py": "import sys\ndef main(): print(sys.argv)\n",
	}, map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "orla_run.py")).CombinedOutput(); err != nil || string(out) != "['thing-serve', '--x']\n" || m.Files["requirements.txt"] != "" {
		t.Errorf("%v: %s", err, out)
	}
}

// SPEC M3: what a bundle lacks, what it must not do and answers that are wrong are said, and nothing is half written.
func TestM3FaultyBundles(t *testing.T) {
	good := func() map[string]string {
		return map[string]string{"manifest.json": manifestOf("node", "a.js", "node", `"${__dirname}/a.js","${user_config.token}"`, ""), "a.js": ""}
	}
	for name, c := range map[string]struct {
		change  func(map[string]string)
		answers map[string]string
		want    string
	}{
		"no manifest":     {func(f map[string]string) { delete(f, "manifest.json") }, nil, "no manifest.json"},
		"no JSON":         {func(f map[string]string) { f["manifest.json"] = "{" }, nil, "not that of an MCP bundle"},
		"another version": {func(f map[string]string) { f["manifest.json"] = strings.Replace(f["manifest.json"], "0.4", "9", 1) }, nil, `manifest version "9"`},
		"no answer":       {func(map[string]string) {}, map[string]string{}, `"token" needs a value (string)`},
		"wrong number": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "config.token}", "config.level}", 1)
		}, map[string]string{"level": "99"}, "must be at most 9"},
		"wrong boolean": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "config.token}", "config.on}", 1)
		}, map[string]string{"on": "perhaps"}, "must be true or false"},
		"wrong folder": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "config.token}", "config.dirs}", 1)
		}, map[string]string{"dirs": "../x"}, "must be an absolute path"},
		"a line break": {func(map[string]string) {}, map[string]string{"token": "a\nb"}, "has a line break"},
		"unknown": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "config.token}", "config.nothing}", 1)
		}, nil, "does not have"},
		"unknown word": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "user_config.token}", "SECRET}", 1)
		}, nil, "does not know"},
		"no file": {func(f map[string]string) { delete(f, "a.js") }, nil, `no file "a.js"`},
		"a file outside": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "${__dirname}/a.js", "${__dirname}/../../a.js", 1)
		}, nil, "no file to run"},
		"docker": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], `"node","args"`, `"docker","args"`, 1)
		}, nil, "may fetch other code"},
		"npx": {func(f map[string]string) { f["manifest.json"] = manifestOf("node", "@a/b", "npx", `"-y","@a/b"`, "") }, nil, "may fetch other code"},
		"uvx": {func(f map[string]string) { f["manifest.json"] = manifestOf("python", "@a/b", "uvx", `"other"`, "") }, nil, "whatever is newest"},
		"a variable": {func(f map[string]string) {
			f["manifest.json"] = manifestOf("node", "a.js", "node", `"${__dirname}/a.js"`, `"LD_PRELOAD":"x"`)
		}, nil, "LD_PRELOAD"},
		"another system": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], `"server":`, `"compatibility":{"platforms":["win32"]},"server":`, 1)
		}, nil, "is for win32"},
		"our file": {func(f map[string]string) { f["orla-run.cjs"] = "evil" }, nil, "has a file orla-run.cjs already"},
		"a type": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], `"type":"string","title"`, `"type":"code","title"`, 1)
		}, nil, "of the type"},
		"many references": {func(f map[string]string) {
			f["manifest.json"] = strings.Replace(f["manifest.json"], "${user_config.token}", strings.Repeat("${user_config.token} ", 700)+`","`+strings.Repeat("${user_config.token} ", 700), 1)
		}, nil, "more than 1000 times"},
	} {
		files := good()
		c.change(files)
		if _, _, err := imported(t, files, c.answers); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A package of Orla's own stays as it is.
	files := good()
	files["tool.yaml"] = "name: mine\n"
	dir, _, err := imported(t, files, nil)
	if text, readErr := os.ReadFile(filepath.Join(dir, "tool.yaml")); err != nil || readErr != nil || string(text) != "name: mine\n" {
		t.Errorf("%q %v %v", text, err, readErr)
	}
}

// SPEC M3: a bundle is fetched from the address that the registry has, and is used only with its digest.
func TestM3BundlesAreFetchedByDigest(t *testing.T) {
	content := strings.Repeat("bundle", 1000)
	sum := sha256.Sum256([]byte(content))
	var s *httptest.Server
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good", "/other":
			fmt.Fprint(w, content)
		case "/plain":
			http.Redirect(w, r, "http://example.com/", http.StatusFound)
		case "/here":
			http.Redirect(w, r, s.URL+"/good", http.StatusFound)
		case "/cut":
			w.Header().Set("Content-Length", "100000")
			fmt.Fprint(w, content)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	for path, want := range map[string]string{
		"/good": "", "/other": "is not the one that the registry has", "/plain": "not accepted", "/here": "not accepted", "/cut": "cut off", "/none": "status 404", "/large": "too large",
	} {
		d := bundle.Download{URL: s.URL + path, SHA256: hex.EncodeToString(sum[:])}
		limits := origin.Limits{}
		switch path {
		case "/other":
			d.SHA256 = strings.Repeat("0", 64)
		case "/large":
			d.URL, limits.Bytes = s.URL+"/good", 100
		}
		file := filepath.Join(t.TempDir(), "x.mcpb")
		err := bundle.Fetch(t.Context(), d, file, limits, s.Client().Transport)
		_, there := os.Stat(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || (there == nil) != (err == nil) {
			t.Errorf("%s: %v (%v)", path, err, there)
		}
	}
	if err := bundle.Fetch(t.Context(), bundle.Download{URL: strings.Replace(s.URL, "https", "http", 1)}, filepath.Join(t.TempDir(), "x"), origin.Limits{}, nil); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("%v", err)
	}
}
