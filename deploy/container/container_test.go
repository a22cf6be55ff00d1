package container_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/needs"
)

// engine runs podman with a store, a configuration and a name of its own.
type engine struct {
	t      *testing.T
	podman []string
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	needs.Programs(t, "podman", "runc")
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: the store of the test's images is root's")
	}
	dir := t.TempDir()
	// runc and no cgroup manager of systemd: they work with any cgroups.
	conf := filepath.Join(dir, "containers.conf")
	text := `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
`
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINERS_CONF", conf)
	e := &engine{t, []string{"podman", "--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp"), "--storage-driver", "vfs"}}
	before := cgroups()
	t.Cleanup(func() {
		e.run("rm", "--all", "--force", "--volumes")
		for _, path := range slices.Backward(cgroups()) {
			if !slices.Contains(before, path) {
				_ = os.Remove(path) // another test's podman may use it
			}
		}
	})
	return e
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

func (e *engine) command(args ...string) *exec.Cmd {
	return exec.Command(e.podman[0], append(e.podman[1:len(e.podman):len(e.podman)], args...)...)
}

func (e *engine) run(args ...string) string {
	e.t.Helper()
	out, err := e.command(args...).CombinedOutput()
	if err != nil {
		e.t.Errorf("podman %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// image builds the image as make does, and returns its name.
func (e *engine) image() string {
	e.t.Helper()
	const name = "localhost/orla:test"
	build := exec.Command(filepath.Join("..", "..", "scripts", "image"), name)
	build.Env = append(os.Environ(), "DIST="+e.t.TempDir(), "CONTAINER="+strings.Join(e.podman, " "), "VERSION=v1.2.3")
	if out, err := build.CombinedOutput(); err != nil {
		e.t.Fatalf("scripts/image: %v\n%s", err, out)
	}
	return name
}

// tools makes a folder with a static program that says who runs it.
func tools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(t.TempDir(), "main.go")
	const text = `package main

import (
	"fmt"
	"os"
)

func main() {
	err := os.WriteFile("/etc/x", nil, 0o644)
	fmt.Println("uid", os.Getuid(), "parent", os.Getppid(), "writes to /etc:", err == nil)
}
`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "who"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil { // for the container's user
			t.Fatal(err)
		}
	}
	return dir
}

// locked are the flags of a container that may do nothing but run.
func locked(tools string) []string {
	return []string{"--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--volume", tools + ":/tools:ro"}
}

// In a container that may do nothing Orla answers, as a user of its own (SPEC K2).
func TestImage(t *testing.T) {
	e := newEngine(t)
	image, tools := e.image(), tools(t)

	t.Run("one client on stdio", func(t *testing.T) {
		args := append(append([]string{"run", "--rm", "--interactive"}, locked(tools)...), image, "--stdio")
		cmd := e.command(args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = &strings.Builder{}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		over := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // a test that waits in a read
		defer over.Stop()
		answers := bufio.NewScanner(out)
		ask := func(message string) string {
			t.Helper()
			fmt.Fprintln(in, message)
			for answers.Scan() {
				var answer struct{ ID *int }
				if json.Unmarshal(answers.Bytes(), &answer) == nil && answer.ID != nil {
					return answers.Text()
				}
			}
			t.Fatalf("no answer to %s\n%s", message, cmd.Stderr)
			return ""
		}
		hello := ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
		if !strings.Contains(hello, `"version":"v1.2.3"`) {
			t.Errorf("initialize: %s", hello)
		}
		fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		got := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"who","arguments":{}}}`)
		if !strings.Contains(got, "uid 65532 parent 1 writes to /etc: false") {
			t.Errorf("tools/call: %s", got)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		for answers.Scan() {
			t.Errorf("it goes on: %s", answers.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ends with %v\n%s", err, cmd.Stderr)
		}
	})

	t.Run("a service", func(t *testing.T) {
		name := fmt.Sprintf("orla-test-%d", os.Getpid())
		e.run(append(append([]string{"run", "--detach", "--name", name}, locked(tools)...), image)...)
		deadline := time.After(time.Minute)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for healthy := false; !healthy; {
			select {
			case <-tick.C:
				healthy = e.command("healthcheck", "run", name).Run() == nil
			case <-deadline:
				t.Fatalf("it does not get healthy\n%s", e.run("logs", name))
			}
		}
		if got := e.run("exec", name, "/usr/bin/orla", "call", "who"); !strings.Contains(got, "uid 65532") {
			t.Errorf("orla call: %s", got)
		}
		e.run("stop", "--time", "30", name)
		if got := strings.TrimSpace(e.run("inspect", "--format", "{{.State.ExitCode}}", name)); got != "0" {
			t.Errorf("it ends with %s\n%s", got, e.run("logs", name))
		}
	})
}
