package deps

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// yanking returns the address of an index with acme 1.0, and with 2.0, which was yanked.
func yanking(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Wheel(t, dir, "acme", "1.0", "version = '1.0'\ndef main(): print(version)\n")
	testkit.Wheel(t, dir, "acme", "2.0", "version = '2.0'\ndef main(): print(version)\n")
	const name = "acme-%s-py3-none-any.whl"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if base := path.Base(r.URL.Path); strings.HasSuffix(base, ".whl") {
			http.ServeFile(w, r, filepath.Join(dir, base))
			return
		}
		if r.URL.Path != "/simple/acme/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		for _, version := range [][2]string{{"1.0", ""}, {"2.0", `data-yanked="it eats data"`}} {
			file := fmt.Sprintf(name, version[0])
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(w, "<a href=\"/files/%s#sha256=%x\" %s>%[1]s</a>\n", file, sha256.Sum256(text), version[1])
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/simple/"
}

// logged gives a Store a log, and returns its text.
func logged(s *Store) *bytes.Buffer {
	var log bytes.Buffer
	s.opts.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return &log
}

// SPEC R2, R4: a version that was yanked is installed if a lock or a declaration names it, with a warning. Where there is a
// choice it is not chosen.
func TestR2YankedVersions(t *testing.T) {
	base, index := python(t), yanking(t)
	const project = "[project]\nname = \"p\"\nversion = \"1\"\nrequires-python = \">=3.8\"\ndependencies = [\"acme\"]\n"
	for _, installer := range []string{"uv", "pip"} {
		t.Run(installer, func(t *testing.T) {
			environ := []string{"UV_DEFAULT_INDEX=" + index, "UV_CACHE_DIR=" + t.TempDir(), "PIP_INDEX_URL=" + index, "PIP_NO_CACHE_DIR=1"}
			if installer == "pip" {
				needs.Time(t, "makes environments with pip")
				environ = append(environ, withoutUV(t))
			} else {
				needs.Programs(t, "uv")
			}
			for name, c := range map[string]struct {
				want      string // a version, or a part of the error
				files     map[string]string
				locks     string // a requirement that is in force while a lock is written
				noScripts bool
			}{
				"a new resolution":     {want: "1.0", files: map[string]string{"requirements.txt": "acme\n"}},
				"named":                {want: "2.0", files: map[string]string{"requirements.txt": "acme==2.0\n"}},
				"nothing else":         {want: "acme", files: map[string]string{"requirements.txt": "acme>=2\n"}},
				"a project":            {want: "1.0", files: map[string]string{"pyproject.toml": project}},
				"a lock":               {want: "2.0", files: map[string]string{"pyproject.toml": project}, locks: "acme==2.0"},
				"a lock from outside":  {want: "2.0", files: map[string]string{"pyproject.toml": project}, locks: "acme==2.0", noScripts: true},
				"named from outside":   {want: "2.0", files: map[string]string{"requirements.txt": "acme==2.0\n"}, noScripts: true},
				"resolved for outside": {want: "1.0", files: map[string]string{"requirements.txt": "acme\n"}, noScripts: true},
			} {
				if quick := name == "named" || name == "a new resolution" && needs.More(); installer == "pip" && !quick { // venv takes seconds
					continue
				}
				from := source(t, Python, printsVersion, c.files)
				from.Interpreter, from.NoScripts = base, c.noScripts
				if c.locks != "" {
					lockAs(t, from.Folders[0], c.locks, environ)
				}
				s := store(t, t.TempDir(), environ...)
				log := logged(s)
				env, err := s.Build(t.Context(), detect(t, s, from), quiet)
				if err != nil {
					if !strings.Contains(err.Error(), c.want) || c.want[0] != 'a' {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if got := output(t, env, from.Script); got != c.want {
					t.Errorf("%s: it has %q", name, got)
				}
				says := strings.Contains(log.String(), "an installed version was withdrawn by its publisher") && strings.Contains(log.String(), "package=acme version=2.0")
				if reason := strings.Contains(log.String(), "it eats data"); says != (c.want == "2.0") || installer == "uv" && reason != says {
					t.Errorf("%s: the log has %q", name, log)
				}
			}
		})
	}
}

// lockAs writes the uv.lock of a project that once named a version, and does not any more.
func lockAs(t *testing.T, dir, requirement string, environ []string) {
	t.Helper()
	file := filepath.Join(dir, "pyproject.toml")
	project := testkit.ReadFile(t, file)
	for _, text := range []string{strings.Replace(project, `"acme"`, `"`+requirement+`"`, 1), project} {
		put(t, file, text)
		cmd := exec.CommandContext(t.Context(), "uv", "lock", "--python", python(t))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), environ...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if !strings.Contains(testkit.ReadFile(t, filepath.Join(dir, "uv.lock")), "acme-2.0") {
		t.Fatal("uv has not kept the version: this test proves nothing")
	}
}

// SPEC R2, R4: a version of npm that the lock says is deprecated is installed with a warning, also for a package from elsewhere.
func TestR2DeprecatedVersions(t *testing.T) {
	needs.Time(t, "runs npm")
	needs.Programs(t, "node", "npm")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	registry, integrity := npmRegistry(t, "acme")
	for _, isForeign := range []bool{false, true} {
		from := source(t, Node, ``, map[string]string{
			"package.json":      `{"name": "t", "version": "1.0.0", "dependencies": {"acme": "1.0.0"}}`,
			"package-lock.json": `{"name": "t", "version": "1.0.0", "lockfileVersion": 3, "packages": {"": {"dependencies": {"acme": "1.0.0"}}, "node_modules/acme": {"version": "1.0.0", "deprecated": "it eats data", "resolved": "` + registry + `/acme.tgz", "integrity": "` + integrity + `"}}}`,
		})
		from.Interpreter, from.NoScripts = node, isForeign
		s := store(t, t.TempDir(), "npm_config_registry="+registry, "npm_config_cache="+t.TempDir())
		log := logged(s)
		env, err := s.Build(t.Context(), detect(t, s, from), quiet)
		if err != nil || !exists(filepath.Join(env.Dir, "node_modules", "acme")) {
			t.Fatalf("from elsewhere %t: %v", isForeign, err)
		}
		if !strings.Contains(log.String(), `package=acme version=1.0.0 reason="it eats data"`) {
			t.Errorf("from elsewhere %t: the log has %q", isForeign, log)
		}
	}
}
