package container_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/testing/attack"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// victim is a process of this machine, of the same user as those in containers.
func victim(t *testing.T, word string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), attack.Program(t), "hang")
	cmd.Env = []string{"VICTIM=" + word}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it hangs
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// SPEC-TOOLS 7.2: what each of the eight promises of a sandbox forbids, tried in a
// container. The same program attacks the native sandbox.
func TestT72Attacks(t *testing.T) {
	b := usualBench(t)
	const word = "victims-word"
	pid := victim(t, word)
	heard := listen(t)
	path := attack.Program(t)
	dir := filepath.Dir(path)
	rooted := filepath.Join(t.TempDir(), "rooted")
	copyTo(t, path, rooted, 0o755|os.ModeSetuid)
	secret := filepath.Join(filepath.Dir(rooted), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	attacks := [][]string{
		{"write"},
		{"mount"},
		{"ptrace", strconv.Itoa(pid)},
		{"raw"},
		{"send", "tcp", heard.tcp},
		{"send", "udp", heard.udp},
		{"abstract", heard.unix},
		{"setuid", rooted},
		{"read", "/etc/shadow", secret, "/proc/1/root/etc/shadow", "/dev/mem", "/dev/kmsg", "/proc/kcore"},
		{"environ", word},
		{"userns"},
		{"fds"},
		{"keys"},
		{"huge"},
		{"tag"},
		{"cpu", "0.75"},
		{"forks", "64"},
	}
	argv := []string{path, "each"}
	for _, one := range attacks {
		argv = append(append(argv, one...), "--")
	}
	spec := launch.Spec{Path: path, Argv: argv, Expose: []string{dir, filepath.Dir(rooted)}, Input: []byte{}}
	o := b.run(b.launcher(b.ours(sandboxed)), spec)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	if len(lines) != len(attacks) {
		t.Fatalf("%d attacks of %d: %+v", len(lines), len(attacks), o)
	}
	for i, line := range lines {
		if t.Log(line); !strings.HasPrefix(line, attacks[i][0]+": held: ") {
			t.Errorf("%s", line)
		}
	}
	spec.Argv = []string{path, "memory", strconv.Itoa(256 << 20)}
	if o := b.run(b.launcher(b.ours(sandboxed)), spec); !o.exit.OutOfMemory || o.stdout != "" {
		t.Errorf("memory: %+v", o)
	}
	if heard.any() {
		t.Error("what was sent has been heard")
	}
}

func copyTo(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	body, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, body, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
	for up := filepath.Dir(to); up != os.TempDir(); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// ears are sockets of this machine, which nobody in a container is to reach.
type ears struct {
	tcp, udp, unix string
	packets        net.PacketConn
}

func listen(t *testing.T) *ears {
	t.Helper()
	var lc net.ListenConfig
	tcp, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	name := "orla-test-" + strconv.Itoa(os.Getpid())
	unix, err := lc.Listen(context.WithoutCancel(t.Context()), "unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = tcp.Close(), udp.Close(), unix.Close() })
	return &ears{tcp.Addr().String(), udp.LocalAddr().String(), name, udp}
}

// any reports whether somebody sent a packet.
func (e *ears) any() bool {
	if err := e.packets.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		return true
	}
	buf := make([]byte, 64)
	n, _, err := e.packets.ReadFrom(buf)
	return err == nil && bytes.Contains(buf[:n], []byte("broken"))
}
