package needs

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Server returns the folder of testdata/servers/NAME, absolute, if what it needs
// is installed there.
func Server(t testing.TB, name string) string {
	t.Helper()
	Time(t, "starts the server "+name)
	dir := filepath.Join(Module(t), "testdata", "servers", name)
	for _, stamp := range []string{"node_modules/.stamp", ".venv/.stamp"} {
		if _, err := os.Stat(filepath.Join(dir, stamp)); err == nil {
			return dir
		}
	}
	Missing(t, "the server %s is not installed; run scripts/clients", name)
	return ""
}

// Conformance returns the folder of testdata/conformance, absolute, if the suite is
// installed there.
func Conformance(t testing.TB) string {
	t.Helper()
	Time(t, "runs the conformance suite")
	dir := filepath.Join(Module(t), "testdata", "conformance")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".stamp")); err != nil {
		Missing(t, "the conformance suite is not installed; run scripts/clients")
	}
	return dir
}

// PythonSDK returns a Python that has version 2 of the official SDK, which
// testdata/clients has for its driver.
func PythonSDK(t testing.TB) string {
	t.Helper()
	Time(t, "starts the Python SDK")
	venv := filepath.Join(Module(t), "testdata", "clients", "python", ".venv")
	if _, err := os.Stat(filepath.Join(venv, ".stamp")); err != nil {
		Missing(t, "the Python SDK is not installed; run scripts/clients")
	}
	return filepath.Join(venv, "bin", "python")
}

// Module returns the folder of the module, absolute. The test runs somewhere below it.
func Module(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			t.Fatal("the test does not run inside the module")
		}
		dir = above
	}
}

// Service is a server that runs.
type Service struct {
	Addr string // host:port

	cmd *exec.Cmd
	in  io.Closer
}

// Start runs the server.mjs of testdata/servers/NAME, with more in its environment,
// until the test is over. It says its port on its first line, and ends with its stdin.
func Start(t testing.TB, name string, env ...string) *Service {
	t.Helper()
	s := &Service{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), "node", "server.mjs")}
	s.cmd.Dir, s.cmd.Env = Server(t, name), append(os.Environ(), env...)
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder // it warns of much that a test does not need
	s.cmd.Stderr = &said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.in = in
	t.Cleanup(s.Stop)
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Stop()
		t.Fatalf("the server %s said no port: %v\n%s", name, err, &said)
	}
	s.Addr = "127.0.0.1:" + strings.TrimSpace(port)
	return s
}

// Stop ends the server; a second time it does nothing.
func (s *Service) Stop() {
	if s.cmd.ProcessState == nil {
		_ = s.in.Close()
		_ = s.cmd.Wait() // its end is not what is tested
	}
}
