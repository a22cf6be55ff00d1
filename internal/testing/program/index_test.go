package program

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// index is an index of Python packages and a registry of npm on this machine. Both have acme 1.0.0 and 2.0.0, and the
// index gadget 1.0.0 as well, and evil 1.0.0, which has to be built.
type index struct {
	*httptest.Server
	files    map[string][]byte // by name
	yanked   map[string]string // why, by name
	requests atomic.Int64
}

func newIndex(t *testing.T) *index {
	t.Helper()
	dir := t.TempDir()
	for _, version := range []string{"1.0.0", "2.0.0"} {
		testkit.Wheel(t, dir, "acme", version, "version = '"+version+"'\ndef main(): print(version)\n")
	}
	testkit.Wheel(t, dir, "gadget", "1.0.0", "version = 'gadget'\ndef main(): pass\n")
	x := &index{files: map[string][]byte{}}
	for _, version := range []string{"1.0.0", "2.0.0"} {
		x.files["acme-"+version+".tgz"] = tarball(t, "package", map[string]string{
			"package.json": `{"name": "acme", "version": "` + version + `", "main": "main.js", "scripts": {"postinstall": "touch ran"}}`,
			"main.js":      `module.exports = { version: "` + version + `" };`,
		})
	}
	x.files["evil-1.0.0.tar.gz"] = tarball(t, "evil-1.0.0", map[string]string{
		"PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0.0\n",
		"setup.py": "import os\nopen(os.environ['ORLA_ENV'] + '/../evil-ran', 'w')\nfrom setuptools import setup\nsetup(name='evil', version='1.0.0')\n",
	})
	wheels, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, wheel := range wheels {
		x.files[wheel.Name()] = []byte(fileText(t, dir, wheel.Name()))
	}
	x.Server = httptest.NewServer(http.HandlerFunc(x.answer))
	t.Cleanup(x.Close)
	return x
}

// tarball returns an archive of files in a folder.
func tarball(t *testing.T, folder string, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: path.Join(folder, name), Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (x *index) answer(w http.ResponseWriter, r *http.Request) {
	x.requests.Add(1)
	part, name, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case x.files[path.Base(name)] != nil:
		_, _ = w.Write(x.files[path.Base(name)])
	case part == "simple":
		w.Header().Set("Content-Type", "text/html")
		found := false
		for _, file := range slices.Sorted(maps.Keys(x.files)) {
			if strings.HasPrefix(file, name+"-") && !strings.HasSuffix(file, ".tgz") {
				found = true
				yanked := ""
				if why := x.yanked[file]; why != "" {
					yanked = fmt.Sprintf(" data-yanked=%q", why)
				}
				fmt.Fprintf(w, "<a href=\"/files/%s#sha256=%x\"%s>%[1]s</a>\n", file, sha256.Sum256(x.files[file]), yanked)
			}
		}
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
	case part == "npm" && name == "acme":
		versions := map[string]any{}
		for _, version := range []string{"1.0.0", "2.0.0"} {
			versions[version] = map[string]any{
				"name": "acme", "version": version, "hasInstallScript": true,
				"dist": map[string]string{"tarball": x.tarball(version), "integrity": x.integrity(version)},
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "acme", "dist-tags": map[string]string{"latest": "2.0.0"}, "versions": versions})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (x *index) tarball(version string) string { return x.URL + "/npm/acme/-/acme-" + version + ".tgz" }

func (x *index) integrity(version string) string {
	sum := sha512.Sum512(x.files["acme-"+version+".tgz"])
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// environ are the variables with which installers use the index, without the caches of the user.
func (x *index) environ(t *testing.T) []string {
	t.Helper()
	return []string{"UV_DEFAULT_INDEX=" + x.URL + "/simple/", "UV_CACHE_DIR=" + t.TempDir(), "UV_PYTHON_DOWNLOADS=never", "npm_config_registry=" + x.URL + "/npm/", "npm_config_cache=" + t.TempDir()}
}

// packageLock is a package-lock.json for a version of acme.
func (x *index) packageLock(version string) string {
	return fmt.Sprintf(`{"name": "t", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {"": {"name": "t", "version": "1.0.0", "dependencies": {"acme": %q}},
"node_modules/acme": {"version": %[1]q, "resolved": %[2]q, "integrity": %[3]q, "hasInstallScript": true}}}`, version, x.tarball(version), x.integrity(version))
}

const pyproject = "[project]\nname = \"t\"\nversion = \"1.0.0\"\nrequires-python = \">=3.9\"\ndependencies = [\"acme==1.0.0\", \"gadget\"]\n"

// uvLock is the lock that uv writes for pyproject.
func (x *index) uvLock(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pyproject.toml"), []byte(pyproject), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "uv", "lock")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), x.environ(t)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return fileText(t, dir, "uv.lock")
}

const packageJSON = `{"name": "t", "version": "1.0.0", "private": true, "dependencies": {"acme": "1.0.0"}}`

// SPEC R6: the real installers install what came from outside in a sandbox, from an index that they reach over the
// network. Nothing of a package runs, and the tool cannot change what was installed.
func TestR6TheRealInstallersInASandbox(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "uv", "npm", "/usr/bin/python3", "/usr/bin/node")
	i, x := newInstallable(t), newIndex(t)
	for dir := i.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
			t.Fatal(err)
		}
	}
	const python = "#!/usr/bin/env python3\nimport acme, os\ntry:\n    open(acme.__file__, 'a')\n    print('changed')\nexcept OSError:\n    print(acme.version)\n"
	const node = "#!/usr/bin/env node\nimport acme from 'acme';\nconsole.log(acme.version);\n"
	for _, c := range []struct {
		name, main, want string
		files            map[string]string
	}{
		{"snake", python, "1.0.0", map[string]string{"requirements.txt": "acme<2\ngadget\n"}},
		{"hexagon", node, "1.0.0", map[string]string{"package.json": packageJSON, "package-lock.json": x.packageLock("1.0.0")}},
		{"locked", python, "1.0.0", map[string]string{"pyproject.toml": pyproject, "uv.lock": x.uvLock(t)}},
		{"built", python, "evil", map[string]string{"requirements.txt": "evil\n"}},
	} {
		src := filepath.Join(t.TempDir(), c.name)
		main := "main.py"
		if c.main == node {
			main = "main.mjs"
		}
		i.write(src, "tool.yaml", "name: "+c.name+"\nversion: 1.0.0\ndescription: x\nentrypoint: "+main+"\nmcp: {input_schema: {}}\n")
		i.write(src, main, c.main)
		for file, text := range c.files {
			i.write(src, file, text)
		}
		i.must("install", "--local", src)
		cmd := i.command("call", c.name, "--socket", "none")
		cmd.Env = append(cmd.Env, x.environ(t)...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != (c.name != "built") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v %s", c.name, err, out)
		}
	}
	if x.requests.Load() == 0 {
		t.Error("nobody has asked the index: this test proves nothing")
	}
	for _, pattern := range []string{"*/node_modules/acme/ran", "evil-ran"} {
		if found, _ := filepath.Glob(filepath.Join(i.dir, "state", "env", pattern)); len(found) > 0 {
			t.Errorf("a script has run: %q", found)
		}
	}
}
