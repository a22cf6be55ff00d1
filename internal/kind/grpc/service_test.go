package grpc_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// service is a running testdata/servers/grpc.
type service struct {
	addr string
	cmd  *exec.Cmd
	in   io.Closer
}

// serve starts the service until the test is over, with more in its environment.
// Without it the test is skipped with the reason, unless ORLA_TEST_CLIENTS=require.
func serve(t *testing.T, env ...string) *service {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "testdata", "servers", "grpc")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".stamp")); err != nil {
		if os.Getenv("ORLA_TEST_CLIENTS") == "require" {
			t.Fatal("the gRPC service is not installed; run scripts/clients")
		}
		t.Skip("SKIPPED: the gRPC service is not installed; run scripts/clients")
	}
	s := &service{cmd: exec.Command("node", "server.mjs")}
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.in = in
	t.Cleanup(s.stop)
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the service said no port: %v", err)
	}
	s.addr = "127.0.0.1:" + strings.TrimSpace(port)
	return s
}

// stop ends the service; a second time it does nothing.
func (s *service) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.in.Close()
		_ = s.cmd.Wait() // its end is not what is tested
	}
}

// port is where it serves.
func (s *service) port() string { return s.addr[strings.LastIndexByte(s.addr, ':')+1:] }
