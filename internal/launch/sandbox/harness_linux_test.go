//go:build amd64 || arm64

package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/guard"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/testing/needs"
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
	if len(os.Args) > 2 && os.Args[1] == asGuard {
		os.Exit(guard.Run(os.Args[2]))
	}
	if mark := os.Getenv(orlaVar); mark != "" {
		keepSandbox(mark)
		os.Exit(0)
	}
	switch name := os.Getenv(attackVar); {
	case greed[name] != nil:
		greed[name]()
		os.Exit(0)
	case name != "":
		attack(name, os.Getenv(argVar))
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

// aHost is newHost for callers that are not a test.
func aHost() (*sandbox.Host, *launch.Local, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	local, err := launch.NewLocal(launch.Options{Guard: []string{self, asGuard}, Log: log})
	if err != nil {
		return nil, nil, err
	}
	return sandbox.NewHost(sandbox.HostOptions{Local: local, Log: log}), local, nil
}

// asGuard makes the test binary a guard.
const asGuard = "guard"

// userVar makes the test binary an Orla of an ordinary user, which tries all
// attacks in a sandbox, with what it reads for them, and writes how they end.
const userVar = "ATTACK_AS_USER"

func asUser(folder string) {
	host, local, err := aHost()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close()
	defer local.Close()
	args, _ := io.ReadAll(os.Stdin) // when all is read, this process is where it has to be
	g := &ground{self: filepath.Join(folder, "attacker"), folder: folder}
	p, err := host.Launcher(sandbox.Options{}).Start(context.Background(), g.spec(all, string(args)))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, stdout, stderr := p.Streams()
	_, _ = io.Copy(os.Stdout, stdout) // until it ends
	_, _ = io.Copy(os.Stderr, stderr)
	<-p.Exited()
	_, _ = stdout.Close(), stderr.Close()
	<-p.Gone()
}
