// Package containertest gives tests a podman of their own, with images that they
// make themselves: nothing is pulled, and no other container is touched. Only
// tests import it.
//
// With ORLA_TEST_ENGINE=docker they use the docker that DOCKER_HOST names instead,
// which is to be one that nobody else uses.
package containertest

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// Image is the name of an image with busybox, and a user 65532.
const Image = "localhost/orla-test:1"

// Engine is a podman with a store of its own.
type Engine struct {
	Program string
	// Environ is what makes it this one. It is to be added to an environment.
	Environ []string
	dir     string
	before  []string // cgroups that were there
}

var (
	mu     sync.Mutex // guards shared
	shared *Engine
)

// WithoutPackages keeps podman from asking the package manager who has installed what it uses. That is four fifths of what its
// "info" takes, which Orla asks for, and nobody reads it. TestMain calls it before the tests, and what it returns after them.
func WithoutPackages() (end func(), err error) {
	dir, err := os.MkdirTemp("", "orla-podman-*")
	if err != nil {
		return nil, err
	}
	end = func() { _ = os.RemoveAll(dir) } // a temporary folder
	script := []byte("#!/bin/sh\nexit 1\n")
	if err := os.WriteFile(filepath.Join(dir, "dpkg-query"), script, 0o755); err != nil { //nolint:gosec // it is run
		end()
		return nil, err
	}
	return end, os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// Podman returns an engine that has Image. The tests of a package share it, and
// their TestMain calls Release.
func Podman(t testing.TB) *Engine {
	t.Helper()
	needs.Time(t, "starts containers")
	if os.Getenv("ORLA_TEST_ENGINE") == "docker" {
		return docker(t)
	}
	needs.Programs(t, "podman", "runc", "busybox", "catatonit")
	needs.Root(t, "keep images in a store of its own")
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		e, err := New()
		if err != nil {
			t.Fatal(err)
		}
		shared = e
		if err := e.Import(Image, Busybox(nil)); err != nil {
			t.Fatal(err)
		}
	}
	return shared
}

// docker returns the engine that is not made here.
func docker(t testing.TB) *Engine {
	t.Helper()
	needs.Programs(t, "docker", "busybox")
	e := &Engine{Program: "docker", Environ: []string{"DOCKER_HOST=" + os.Getenv("DOCKER_HOST")}}
	mu.Lock()
	defer mu.Unlock()
	if e.Command("image", "inspect", Image).Run() == nil {
		return e
	}
	if err := e.Import(Image, Busybox(nil)); err != nil {
		t.Fatal(err)
	}
	return e
}

// IsPodman reports whether it is one, and not docker.
func (e *Engine) IsPodman() bool { return e.Program == "podman" }

// Release removes what Podman made.
func Release() {
	mu.Lock()
	defer mu.Unlock()
	if shared != nil {
		shared.Close()
		shared = nil
	}
}

// New returns an engine without images. The caller must Close it.
func New() (*Engine, error) {
	dir, err := os.MkdirTemp("", "orla-podman-*")
	if err != nil {
		return nil, err
	}
	e := &Engine{Program: "podman", dir: dir, before: cgroups()}
	// runc, no cgroup manager of systemd, low limits: these work with any cgroups,
	// and without the right to raise a limit.
	for name, text := range map[string]string{
		"containers.conf": `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "` + dir + `/tmp"
`,
		"storage.conf": `[storage]
driver = "vfs"
graphroot = "` + dir + `/root"
runroot = "` + dir + `/run"
`,
		"registries.conf": "unqualified-search-registries = []\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	e.Environ = []string{
		"CONTAINERS_CONF=" + filepath.Join(dir, "containers.conf"),
		"CONTAINERS_STORAGE_CONF=" + filepath.Join(dir, "storage.conf"),
		"CONTAINERS_REGISTRIES_CONF=" + filepath.Join(dir, "registries.conf"),
	}
	return e, nil
}

// Registries replaces what the engine knows of registries.
func (e *Engine) Registries(text string) error {
	return os.WriteFile(filepath.Join(e.dir, "registries.conf"), []byte(text), 0o600)
}

// Command is one of the engine.
func (e *Engine) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(e.Program, args...) //nolint:noctx // tests bound what they run
	cmd.Env = append(os.Environ(), e.Environ...)
	return cmd
}

// Run runs a command of the engine, and returns what it prints.
func (e *Engine) Run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.Command(args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", e.Program, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Tear leaves of a container that does not run what podman leaves that is killed
// while it removes one: a name whose files are gone.
func (e *Engine) Tear(t testing.TB, name string) {
	t.Helper()
	id := e.Run(t, "ps", "--all", "--quiet", "--no-trunc", "--filter=name=^"+name+"$")
	conf, err := os.ReadFile(filepath.Join(e.dir, "containers.conf"))
	if err != nil {
		t.Fatal(err)
	}
	// Another podman with the same files, that has not heard of the container, may remove them.
	stranger := t.TempDir()
	path := filepath.Join(stranger, "containers.conf")
	if err := os.WriteFile(path, append(conf, "static_dir = \""+stranger+"\"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := e.Command("rm", "--force", id)
	cmd.Env = append(cmd.Env, "CONTAINERS_CONF="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Import makes an image of files. changes are lines of a Dockerfile.
func (e *Engine) Import(name string, image []byte, changes ...string) error {
	args := []string{"import"}
	if e.IsPodman() {
		args = append(args, "--quiet")
	}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	cmd := e.Command(append(args, "-", name)...)
	cmd.Stdin = bytes.NewReader(image)
	if out, err := cmd.CombinedOutput(); err != nil {
		return &fs.PathError{Op: "import: " + string(out), Path: name, Err: err}
	}
	return nil
}

// Close removes the engine's containers and images, and what it left elsewhere.
func (e *Engine) Close() {
	_ = e.Command("rm", "--all", "--force", "--volumes", "--time=0").Run()
	for _, path := range slices.Backward(cgroups()) {
		if !slices.Contains(e.before, path) {
			_ = os.Remove(path) // another test's podman may use it
		}
	}
	_ = os.RemoveAll(e.dir) // nothing of it is mounted any more
}

// cgroups lists those that podman leaves behind, parents before what is in them.
func cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/libpod_parent", "/sys/fs/cgroup/*/libpod_parent"} {
		tops, _ := filepath.Glob(pattern) // the pattern is a good one
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error { // what is gone needs no removal
				if err == nil && entry.IsDir() {
					found = append(found, path)
				}
				return nil
			})
		}
	}
	return found
}

// applets are the programs of busybox that the image has.
var applets = []string{
	"cat", "chmod", "cp", "dd", "echo", "env", "false", "grep", "head", "id", "ip", "kill", "ls", "mkdir", "mount", "nc", "ps",
	"pwd", "rm", "sed", "setsid", "sh", "sleep", "su", "touch", "tr", "true", "umount", "unshare", "wc", "yes",
}

// Busybox is a root file system as a tar, with more programs by their paths there.
func Busybox(more map[string]string) []byte {
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	put := func(h tar.Header, body []byte) {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			panic(err) // into memory
		}
		_, _ = w.Write(body)
	}
	for _, dir := range []string{"bin", "etc", "dev", "proc", "sys", "run", "var", "home"} {
		put(tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	put(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	put(tar.Header{Name: "open/", Typeflag: tar.TypeDir, Mode: 0o777}, nil) // anybody may write here, as far as its mode goes
	put(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\nnobody:x:65532:65532::/tmp:/bin/sh\n"))
	put(tar.Header{Name: "etc/shadow", Typeflag: tar.TypeReg, Mode: 0o600}, []byte("root:image:::::::\n"))
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		panic(err) // needs has asked
	}
	programs := map[string]string{"bin/busybox": busybox}
	for to, from := range more {
		programs[strings.TrimPrefix(to, "/")] = from
	}
	for to, from := range programs {
		body, err := os.ReadFile(from)
		if err != nil {
			panic(err)
		}
		put(tar.Header{Name: to, Typeflag: tar.TypeReg, Mode: 0o755}, body)
	}
	put(tar.Header{Name: "bin/rootly", Typeflag: tar.TypeReg, Mode: 0o4755}, programBytes(busybox)) // setuid root
	for _, name := range applets {
		if _, given := programs["bin/"+name]; given {
			continue
		}
		put(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	_ = w.Close() // the same
	return image.Bytes()
}

func programBytes(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer func() { _ = f.Close() }()
	body, err := io.ReadAll(f)
	if err != nil {
		panic(err)
	}
	return body
}
