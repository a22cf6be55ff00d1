//go:build amd64 || arm64

package sandbox_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/sandbox"
)

// TestM7Grants: a process gets what was granted, and nothing beside it (SPEC M7).
func TestM7Grants(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, folder := range []string{"read", "write", "write/own", "other", "tools", "tools/x"} {
		if err := os.Mkdir(at(folder), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for folder := dir; folder != "/tmp" && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"read", "write", "write/own", "other"} {
		if err := os.Chmod(at(folder), 0o777); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
		if err := os.WriteFile(at(folder+"/f"), []byte("content\n"), 0o666); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
		if err := os.Chmod(at(folder+"/f"), 0o666); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
	}
	for _, file := range []string{"token", "write/own.yaml"} {
		if err := os.WriteFile(at(file), []byte("secret"), 0o644); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("tools/secret"), []byte("secret"), 0o644); err != nil { //nolint:gosec // the same
		t.Fatal(err)
	}
	script := `cd /
try() { if sh -c "$2" >/dev/null 2>&1; then echo "$1 yes"; else echo "$1 no"; fi; }
try read 'cat DIR/read/f'
try write-read 'echo x >>DIR/read/f'
try make-read 'echo x >DIR/read/new'
try write 'echo x >>DIR/write/f'
try make 'mkdir DIR/write/d && echo x >DIR/write/d/new && mv DIR/write/d/new DIR/write/new'
try set-id 'echo x >DIR/write/s; chmod 4755 DIR/write/s'
try run 'cp /bin/true DIR/write/t && DIR/write/t'
try package 'cat DIR/write/own/f'
try write-package 'echo x >>DIR/write/own/f'
try move-package 'mv DIR/write/own DIR/write/elsewhere'
try other 'cat DIR/other/f'
try make-other 'echo x >DIR/other/new'
try tools 'cat DIR/tools/secret'
try make-tools 'echo x >DIR/tools/new'
try token 'grep -q . DIR/token'
try config 'grep -q . DIR/write/own.yaml'
try change-config 'rm -f DIR/write/own.yaml; mv DIR/write/own.yaml DIR/write/moved; ln DIR/write/own.yaml DIR/write/linked; grep -q . DIR/write/moved DIR/write/linked'
try passwd 'grep -q ^daemon /etc/passwd'
`
	script = strings.ReplaceAll(script, "DIR", dir)
	spec := launch.Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Input: []byte{}, Whole: true, Expose: []string{at("write/own")}}
	hidden := []string{at("tools"), at("token"), at("write/own.yaml"), at("gone")}
	yes := func(opts sandbox.Options) (list []string) {
		t.Helper()
		for line := range strings.Lines(said(t, host.Launcher(opts), spec)) {
			if what, ok := strings.CutSuffix(strings.TrimSpace(line), " yes"); ok {
				list = append(list, what)
			}
		}
		return list
	}
	for _, c := range []struct {
		name string
		opts sandbox.Options
		want []string
	}{
		{"nothing", sandbox.Options{Hidden: hidden}, []string{"package"}},
		{"read", sandbox.Options{Hidden: hidden, Reads: []string{at("read")}}, []string{"read", "package"}},
		{"write", sandbox.Options{Hidden: hidden, Reads: []string{at("read")}, Writes: []string{at("write")}}, []string{"read", "write", "make", "package"}},
		{"all in a folder", sandbox.Options{Hidden: hidden, Reads: []string{dir}}, []string{"read", "package", "other"}},
		{"a missing folder", sandbox.Options{Hidden: hidden, Reads: []string{at("none")}, Writes: []string{at("none2")}}, []string{"package"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := yes(c.opts); !slices.Equal(got, c.want) {
				t.Errorf("it may %v; want %v", got, c.want)
			}
			_ = os.RemoveAll(at("write/d"))
		})
	}
	t.Run("all", func(t *testing.T) {
		if got := yes(sandbox.Options{Reads: []string{"/"}}); !slices.Contains(got, "passwd") || slices.Contains(got, "make") {
			t.Errorf("it may %v", got)
		}
	})
	t.Run("Orla's own files", func(t *testing.T) {
		for _, file := range []string{"token", "write/own.yaml"} {
			if text, err := os.ReadFile(at(file)); err != nil || string(text) != "secret" {
				t.Errorf("%s is now %q, %v", file, text, err)
			}
		}
	})
	t.Run("a folder that became a link", func(t *testing.T) {
		if err := os.Symlink(at("other"), at("link")); err != nil {
			t.Fatal(err)
		}
		_, err := host.Launcher(sandbox.Options{Reads: []string{at("link")}}).Start(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), "is now a link") {
			t.Errorf("it starts, or fails with %v", err)
		}
	})
}

// TestM7NetworkGranted: with the network of the machine a process reaches its servers, and none of its unix
// sockets, nor what else a sandbox forbids (SPEC M7).
func TestM7NetworkGranted(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	ground := newGround(t)
	socket := filepath.Join(ground.folder, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chmod(socket, 0o777); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
		t.Fatal(err)
	}
	launcher := host.Launcher(sandbox.Options{Network: true, Reads: []string{ground.folder}})
	ends := endings(said(t, launcher, ground.spec(all, ground.allArgs())))
	for name, allowed := range fails {
		switch name {
		case "tcp", "udp":
			allowed = []string{"done"}
		case "abstract":
			allowed = []string{"EAFNOSUPPORT"}
		}
		if !slices.Contains(allowed, ends[name]) {
			t.Errorf("%s ends with %q; want one of %q", name, ends[name], allowed)
		}
	}
	if end := said(t, launcher, ground.spec("abstract", socket)); end != "EAFNOSUPPORT" {
		t.Errorf("a unix socket in a visible folder ends with %q", end)
	}
	if end := said(t, ground.launcher, ground.spec("abstract", socket)); end != "done" {
		t.Errorf("without the grant, the socket of its own package ends with %q: this test proves nothing", end)
	}
}
