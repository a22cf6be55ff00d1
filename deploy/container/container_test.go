package container_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/needs"
)

// patience bounds every wait of these tests. Nothing waits for it unless something
// is wrong.
const patience = 2 * time.Minute

// newEngine returns a podman with a store of its own, which holds nothing.
func newEngine(t *testing.T) *containertest.Engine {
	t.Helper()
	needs.Time(t, "builds an image")
	needs.Programs(t, "podman", "runc")
	needs.Root(t, "keep images in a store of its own")
	e, err := containertest.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// image builds the image as make does, and returns its name.
func image(t *testing.T, e *containertest.Engine) string {
	t.Helper()
	const name = "localhost/orla:test"
	build := exec.Command(filepath.Join("..", "..", "scripts", "image"), name)
	build.Env = append(os.Environ(), "DIST="+t.TempDir(), "VERSION=v1.2.3")
	build.Env = append(build.Env, e.Environ...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("scripts/image: %v\n%s", err, out)
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
	image, tools := image(t, e), tools(t)

	t.Run("one client on stdio", func(t *testing.T) {
		args := append(append([]string{"run", "--rm", "--interactive"}, locked(tools)...), image, "--stdio")
		cmd := e.Command(args...)
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
		over := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // a test that waits in a read
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
		e.Run(t, append(append([]string{"run", "--detach", "--name", name}, locked(tools)...), image)...)
		deadline := time.After(patience)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for healthy := false; !healthy; {
			select {
			case <-tick.C:
				healthy = e.Command("healthcheck", "run", name).Run() == nil
			case <-deadline:
				t.Fatalf("it does not get healthy\n%s", e.Run(t, "logs", name))
			}
		}
		if got := e.Run(t, "exec", name, "/usr/bin/orla", "call", "who"); !strings.Contains(got, "uid 65532") {
			t.Errorf("orla call: %s", got)
		}
		e.Run(t, "stop", "--time", "30", name)
		if got := e.Run(t, "inspect", "--format", "{{.State.ExitCode}}", name); got != "0" {
			t.Errorf("it ends with %s\n%s", got, e.Run(t, "logs", name))
		}
	})
}
