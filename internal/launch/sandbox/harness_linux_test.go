//go:build amd64 || arm64

package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/needs"
)

// newHost returns a Host, and the Local that it starts by.
func newHost(t testing.TB) (*sandbox.Host, *launch.Local) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	host := sandbox.NewHost(sandbox.HostOptions{Local: local, Log: log})
	t.Cleanup(func() {
		local.Close()
		host.Close()
	})
	return host, local
}

func TestMain(m *testing.M) {
	if folder := os.Getenv(userVar); folder != "" {
		asUser(folder)
		os.Exit(0)
	}
	if name := os.Getenv(attackVar); name != "" {
		attack(name)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		needs.Missing(t, "the test needs root, for what it attacks")
	}
}

// userVar makes the test binary an Orla of an ordinary user: it tries the attacks
// that it reads, a line each, and writes how they end.
const userVar = "ATTACK_AS_USER"

func asUser(folder string) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		log.Error("start", "err", err)
		return
	}
	host := sandbox.NewHost(sandbox.HostOptions{Local: local, Log: log})
	defer host.Close()
	defer local.Close()
	g := &ground{launcher: host.Launcher(sandbox.Options{}), self: filepath.Join(folder, "attacker"), folder: folder, args: map[string]string{}}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		name, arg, _ := strings.Cut(lines.Text(), " ")
		g.args[name] = arg
		fmt.Println(g.tell(name))
	}
}

// tell is inside for those who are no test.
func (g *ground) tell(name string) string {
	p, err := g.launcher.Start(context.Background(), g.spec(name))
	if err != nil {
		return err.Error()
	}
	_, stdout, stderr := p.Streams()
	said, _ := io.ReadAll(stdout) // until it ends
	_, _ = io.Copy(os.Stderr, stderr)
	<-p.Exited()
	_, _ = stdout.Close(), stderr.Close()
	<-p.Gone()
	return strings.TrimSpace(string(said))
}
