package deps

import (
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// npmRegistry returns the address of a registry that has version 1.0.0 of one package, with a script that is run after an install,
// and the digest of that.
func npmRegistry(t *testing.T, name string, script ...string) (address, integrity string) {
	t.Helper()
	made := t.TempDir()
	put(t, filepath.Join(made, name, "package.json"), fmt.Sprintf(`{"name": %q, "version": "1.0.0", "scripts": {"postinstall": %q}}`, name, strings.Join(script, "; ")))
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "./"+name)
	cmd.Dir = made
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	packed := testkit.ReadFile(t, filepath.Join(made, name+"-1.0.0.tgz"))
	sum := sha512.Sum512([]byte(packed))
	integrity = "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".tgz") {
			_, _ = w.Write([]byte(packed))
			return
		}
		fmt.Fprintf(w, `{"name":%q,"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":%[1]q,"version":"1.0.0","dist":{"tarball":"%s/%[1]s.tgz","integrity":%q}}}}`, name, s.URL, integrity)
	}))
	t.Cleanup(s.Close)
	return s.URL, integrity
}

// SPEC R6: what came from outside is installed without scripts, and shares no environment with what may run them.
func TestR6NodePackagesRunNoScripts(t *testing.T) {
	needs.Time(t, "runs npm")
	needs.Programs(t, "node", "npm")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "ran")
	registry, integrity := npmRegistry(t, "acme", "touch "+mark)
	from := source(t, Node, ``, map[string]string{
		"package.json":      `{"name": "t", "version": "1.0.0", "dependencies": {"acme": "^1.0.0"}}`,
		"package-lock.json": `{"name": "t", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": {"dependencies": {"acme": "^1.0.0"}}, "node_modules/acme": {"version": "1.0.0", "hasInstallScript": true, "resolved": "` + registry + `/acme.tgz", "integrity": "` + integrity + `"}}}`,
		".npmrc":            "ignore-scripts=false\nregistry=http://127.0.0.1:1/\n",
	})
	from.Interpreter = node
	s := store(t, t.TempDir(), "npm_config_registry="+registry, "npm_config_cache="+t.TempDir())
	careful := from
	careful.NoScripts = true
	need := detect(t, s, careful)
	if need.Digest == detect(t, s, from).Digest {
		t.Error("both have the same environment")
	}
	env, err := s.Build(t.Context(), need, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if exists(mark) || !exists(filepath.Join(env.Dir, "node_modules", "acme", "package.json")) {
		t.Error("a script has run, or nothing is installed")
	}
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err != nil || !exists(mark) {
		t.Errorf("where it may run, it has not: %v: this test proves nothing", err)
	}
}

// SPEC R6: pip cannot be kept from running the code of what it installs, so it installs nothing here.
func TestR6PipInstallsNothingFromOutside(t *testing.T) {
	from := source(t, Python, printsVersion, map[string]string{"requirements.txt": "acme\n"})
	from.Interpreter, from.NoScripts = python(t), true
	s := store(t, t.TempDir(), withoutUV(t))
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil || !strings.Contains(err.Error(), "is not granted") {
		t.Errorf("it is installed, or fails with %v", err)
	}
}

// SPEC R6: with uv, packages that would have to be built are refused.
func TestR6UVBuildsNothing(t *testing.T) {
	needs.Programs(t, "uv")
	made, mark := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	put(t, filepath.Join(made, "evil", "setup.py"), "open("+`"`+mark+`"`+", 'w').close()\nfrom setuptools import setup\nsetup(name='evil', version='1')\n")
	evil := filepath.Join(made, "evil")
	put(t, filepath.Join(made, "more.txt"), "--editable="+evil+"\n")
	project := "[project]\nname = \"p\"\nversion = \"1\"\n"
	for line, files := range map[string]map[string]string{
		"a folder":             {"requirements.txt": evil + "\n"},
		"an editable one":      {"requirements.txt": "-e " + evil + "\n"},
		"an included one":      {"requirements.txt": "-r " + filepath.Join(made, "more.txt") + "\n"},
		"a URL":                {"requirements.txt": "evil @ file://" + evil + "\n"},
		"a source":             {"pyproject.toml": project + "dependencies = [\"evil\"]\n[tool.uv.sources]\nevil = {path = \"" + evil + "\", editable = true}\n"},
		"dynamic dependencies": {"pyproject.toml": project + "dynamic = [\"dependencies\"]\n[build-system]\nrequires = []\nbuild-backend = \"b\"\nbackend-path = [\".\"]\n", "b.py": "open('" + mark + "', 'w').close()\n", "uv.lock": "version = 1\n"},
	} {
		from := source(t, Python, printsVersion, files)
		from.Interpreter, from.NoScripts = python(t), true
		s := store(t, t.TempDir())
		if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil {
			t.Errorf("%s is installed", line)
		}
		if exists(mark) {
			t.Errorf("%s has run code", line)
			_ = os.Remove(mark)
		}
	}
}
