package wiring

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/cluster/replicas"
	"github.com/orla-project/orla/manifest"
)

// SPEC P3: what a process that runs for all replicas sees of this machine, and its working folder, are those of the same
// capsule in one Orla.
func TestP3ACapsuleForAllReplicasSeesTheSame(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "server.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server := manifest.Tool{Name: "server", Kind: manifest.Capsule, Dir: dir, Runtime: manifest.Runtime{Generated: true}}
	inPod, sandboxed := server, server
	inPod.Path, inPod.Isolation.Mode = "/program", manifest.IsolationKubernetes
	sandboxed.Path, sandboxed.Run.Args, sandboxed.Isolation.Mode = "python3", []string{"server.py"}, manifest.IsolationSandboxed
	pack := manifest.Tool{Name: "box", Kind: manifest.Capsule, Version: "1.0.0", Dir: dir, Path: filepath.Join(dir, "server.py"), Isolation: sandboxed.Isolation}
	for name, c := range map[string]struct {
		tool    manifest.Tool
		exposed []string
		workDir string
	}{
		"an McpServer in a Pod":     {inPod, nil, "/tmp"},
		"an McpServer in a sandbox": {sandboxed, []string{filepath.Join(dir, "server.py")}, dir},
		"a package in a sandbox":    {pack, []string{dir}, dir},
	} {
		for _, tool := range []manifest.Tool{c.tool, underOwnNames(c.tool)} {
			if got, where := tool.Exposed(), tool.WorkDir(); !slices.Equal(got, c.exposed) || where != c.workDir {
				t.Errorf("%s: %q in %s, want %q in %s", name, got, where, c.exposed, c.workDir)
			}
		}
	}
}

// SPEC P3, D7a, N2: the lists of clients, and /readyz, wait for one's own capsule behind a replica as long as it may take to start, and not
// as for a stranger's server.
func TestP3ACapsuleForAllReplicasIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		all, err := replicas.New(replicas.Options{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		parts := &Parts{}
		parts.Shared = &Shared{Replicas: all}
		made, err := parts.held(manifest.Tool{Name: "slow", Kind: manifest.Capsule, Runtime: manifest.Runtime{StartupTimeout: time.Minute}}, capsule.Options{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		held, ok := made.(*heldCapsule)
		if !ok {
			t.Fatalf("it is a %T", made)
		}
		ctx, end := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = held.Capsule.Serve(ctx) // ctx ends it
		}()
		defer func() { end(); <-over }()
		time.Sleep(45 * time.Second) // no replica holds it yet
		if life := held.Life(); held.Offers().Known || life.Settled || life.Overdue {
			t.Errorf("nobody waits for it: known %t, %+v", held.Offers().Known, life)
		}
	})
}
