//go:build amd64 || arm64

package sandbox_test

import (
	"io"
	"os/exec"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
)

// BenchmarkStart compares what it costs to run a program that does nothing: as
// it is, in a sandbox, and in one of bubblewrap's, which bounds nothing.
func BenchmarkStart(b *testing.B) {
	host, local := newHost(b)
	run := func(l launch.Launcher, spec launch.Spec) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				p, err := l.Start(b.Context(), spec)
				if err != nil {
					b.Fatal(err)
				}
				_, stdout, stderr := p.Streams()
				_, _ = io.Copy(io.Discard, stdout) // until it ends
				<-p.Exited()
				if code := p.Exit().Code; code != 0 {
					said, _ := io.ReadAll(stderr)
					b.Fatalf("exited with %d: %s", code, said)
				}
				_, _ = stdout.Close(), stderr.Close()
				<-p.Gone()
			}
		}
	}
	nothing := launch.Spec{Path: "/bin/true", Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Input: []byte{}}
	b.Run("bare", run(local.Launcher(), nothing))
	b.Run("sandbox", run(host.Launcher(sandbox.Options{}), nothing))
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("SKIPPED: no bubblewrap to compare with")
	}
	wrapped := nothing
	wrapped.Path = bwrap
	wrapped.Argv = []string{
		"bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent", "--new-session", "/bin/true",
	}
	b.Run("bwrap", run(local.Launcher(), wrapped))
}
