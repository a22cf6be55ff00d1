package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		mode := os.FileMode(0o640)
		if strings.HasPrefix(text, "#!") {
			mode = 0o750
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// SPEC M8: the same files make the same bytes, in both forms, whenever and by whomever they are packed. What is ignored stays out,
// and what is in it is the package.
func TestM8PackIsReproducible(t *testing.T) {
	files := map[string]string{
		"tool.yaml": "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: bin/a\nruntime: {mode: capsule, handshake: mcp, args: [--x]}\n",
		"bin/a":     "#!/bin/sh\n", "README.md": "x", ".gitignore": "*.log\n/build/\n!keep.log\n", "node_modules/x/index.js": "x",
	}
	ignored := map[string]string{"a.log": "x", "build/out": "x", ".git/config": "x", "__pycache__/a.pyc": "x", ".venv/x": "x", origin.Record: "{}"}
	first := folder(t, files)
	all := map[string]string{"keep.log": "x"}
	for _, more := range []map[string]string{files, ignored} {
		maps.Copy(all, more)
	}
	second := folder(t, all)
	if err := errors.Join(os.Remove(filepath.Join(second, "keep.log")), os.Symlink("a", filepath.Join(first, "bin/b")), os.Symlink("a", filepath.Join(second, "bin/b"))); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(second, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return os.Chtimes(path, time.Time{}, time.Unix(1e9, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []bundle.Format{bundle.TarGz, bundle.MCPB} {
		var a, b bytes.Buffer
		names, err := bundle.Pack(first, &a, format)
		if err != nil || !slices.Contains(names, "bin/a") {
			t.Fatal(names, err)
		}
		out, err := os.Create(filepath.Join(second, "out."+string(format))) // beside what is packed, as is one of before
		if err != nil {
			t.Fatal(err)
		}
		_, err = bundle.Pack(second, out, format)
		if err := errors.Join(err, out.Close()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out.Name())
		if err := errors.Join(err, os.Rename(out.Name(), filepath.Join(second, filepath.Base(second)+"."+string(format)))); err != nil {
			t.Fatal(err)
		}
		b.Write(text)
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: %d and %d bytes, which differ", format, a.Len(), b.Len())
		}
		file, into := filepath.Join(t.TempDir(), "x"), filepath.Join(t.TempDir(), "into")
		if err := errors.Join(os.WriteFile(file, a.Bytes(), 0o600), origin.Unpack(t.Context(), file, into, origin.Limits{})); err != nil {
			t.Fatal(err)
		}
		if format == bundle.MCPB {
			var m struct {
				Server struct {
					Config struct{ Command string } `json:"mcp_config"`
				}
			}
			text, err := os.ReadFile(filepath.Join(into, "manifest.json"))
			if err := errors.Join(err, json.Unmarshal(text, &m), os.Remove(filepath.Join(into, "manifest.json"))); err != nil || m.Server.Config.Command != "${__dirname}/bin/a" {
				t.Errorf("%v %s", err, text)
			}
		}
		want, err1 := origin.Digest(t.Context(), first)
		got, err2 := origin.Digest(t.Context(), into)
		if err1 != nil || err2 != nil || got != want {
			t.Errorf("%s: the tree is another one: %v %v", format, err1, err2)
		}
	}
	for name, files := range map[string]map[string]string{
		"no tool.yaml":   {"a": "x"},
		"only a capsule": {"tool.yaml": "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: a\n", "a": "#!/bin/sh\n"},
	} {
		if _, err := bundle.Pack(folder(t, files), &bytes.Buffer{}, bundle.MCPB); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	out := folder(t, files)
	if err := os.Symlink("../../etc/passwd", filepath.Join(out, "l")); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Pack(out, &bytes.Buffer{}, bundle.TarGz); err == nil || !strings.Contains(err.Error(), "leads out") {
		t.Errorf("%v", err)
	}
}

// SPEC M5: all versions of a package of npm are fixed before it is installed, and nothing of it runs for that.
func TestM5LocksOfPackagesOfNpm(t *testing.T) {
	needs.Time(t, "runs npm")
	needs.Programs(t, "npm")
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		needed := map[string]string{"thing": `"dependencies":{"below":"^1.0.0"},`, "below": `"hasInstallScript":true,`}
		if needed[name] == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"name":%q,"dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":%q,"version":"1.2.3",%s"dist":{"tarball":"%s/%s.tgz","integrity":"sha512-AAAA"}}}}`, name, name, needed[name], s.URL, name)
	}))
	defer s.Close()
	m, err := made(t, `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"npm","identifier":"thing","version":"1.2.3","transport":{"type":"stdio"}}]}`, bundle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NPM_CONFIG_REGISTRY", s.URL)
	dir := t.TempDir()
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	locked, err := m.Lock(t.Context(), dir, time.Time{}, locker(t))
	if err != nil || !locked {
		t.Fatalf("%v %v", locked, err)
	}
	if text := testkit.ReadFile(t, filepath.Join(dir, "package-lock.json")); !strings.Contains(text, "node_modules/below") || !strings.Contains(text, "sha512-AAAA") {
		t.Errorf("%s", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err == nil {
		t.Error("it was installed")
	}
	if err := validPackage(dir); err != nil {
		t.Error(err)
	}
}

// SPEC M5: with uv the same holds for packages of PyPI.
func TestM5LocksOfPackagesOfPyPI(t *testing.T) {
	needs.Programs(t, "uv", "python3")
	wheels := t.TempDir()
	testkit.Wheel(t, wheels, "thing", "1.2.3", "def main(): print('it runs')\n", "below<2")
	testkit.Wheel(t, wheels, "below", "1.0", "def main(): pass\n")
	testkit.Wheel(t, wheels, "below", "2.0", "def main(): pass\n")
	t.Setenv("UV_FIND_LINKS", wheels)
	t.Setenv("UV_NO_INDEX", "1")
	t.Setenv("UV_OFFLINE", "1")
	t.Setenv("UV_CACHE_DIR", t.TempDir())
	m, err := made(t, `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"pypi","identifier":"thing","version":"1.2.3","registryBaseUrl":"https://pypi.example.com/simple","transport":{"type":"stdio"}}]}`, bundle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	t.Setenv("UV_EXTRA_INDEX_URL", "https://me:secret@example.com/simple")
	if locked, err := m.Lock(t.Context(), dir, time.Time{}, locker(t)); err != nil || !locked {
		t.Fatalf("%v %v", locked, err)
	}
	text := testkit.ReadFile(t, filepath.Join(dir, "requirements.txt"))
	if !strings.Contains(text, "thing==1.2.3") || !strings.Contains(text, "below==1.0") || !strings.Contains(text, "--hash=sha256:") || !strings.HasPrefix(text, "--index-url https://pypi.example.com/simple\n") || strings.Contains(text, "secret") {
		t.Errorf("%s", text)
	}
}

// SPEC M3: a tag can be moved by its owner, so an image that is not measured is pinned by the digest that the engine has.
func TestM3ImagesArePinned(t *testing.T) {
	const digest = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const server = `{"name":"a/thing","version":"1.2.3","description":"x","packages":[{"registryType":"oci","identifier":"docker.io/a/thing:1.2.3","transport":{"type":"stdio"}}]}`
	for script, want := range map[string]string{
		`[ "$1" = image ] || exit 1; echo '["docker.io/other@` + digest + `"]'`: "",
		`[ "$1" = image ] || exit 1; echo '["python@` + digest + `"]'`:          "", // docker has official images so
		`[ "$1" = image ] || exit 1; echo '["python:1"]'`:                       "has no digest",
		`[ "$1" = image ] || exit 1; echo '[]'`:                                 "has no digest",
		`[ "$1" = image ] || exit 1; echo no`:                                   "does not say the digest",
		"echo 'no such \033[31m image' >&2; exit 1":                             "failed: no such [31m image",
	} {
		dir := folder(t, map[string]string{"docker": "#!/bin/sh\n" + script + "\n"})
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		m, err := made(t, server, bundle.Options{})
		if err != nil || m.Image != "docker.io/a/thing:1.2.3" {
			t.Fatalf("%+v %v", m, err)
		}
		err = m.Pin(t.Context(), "docker")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
		if err == nil && (!strings.Contains(string(m.Resource), `"docker.io/a/thing@`+digest+`"]`) || m.Image != "docker.io/a/thing@"+digest || valid(t, m) != nil) {
			t.Errorf("%s", m.Resource)
		}
	}
}
