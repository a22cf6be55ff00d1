package testkit

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// GitDaemon serves the repositories below a folder by git's own protocol until the test ends, and returns the URL of the
// folder. variable is for its environment, such as GIT_CONFIG_GLOBAL=FILE.
func GitDaemon(t *testing.T, folder, variable string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "git", "daemon", "--reuseaddr", "--export-all", "--listen=127.0.0.1", fmt.Sprint("--port=", addr.Port), "--base-path="+folder, folder)
	cmd.Env = append(os.Environ(), variable)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // git passes it on to the daemon, which SIGKILL would leave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	Eventually(t, "git daemon listens", func() bool {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr.String())
		return err == nil && c.Close() == nil
	})
	return "git://" + addr.String()
}
