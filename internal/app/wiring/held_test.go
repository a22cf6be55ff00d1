package wiring

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

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
