//go:build amd64 || arm64

package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/testing/needs"
)

// fails says how each attack has to end inside. Most of it is said twice: what
// the mounts and namespaces refuse, the filter or Landlock refuses before.
var fails = map[string][]string{
	"write":           {"EROFS", "EACCES"},
	"write-system":    {"EROFS", "EACCES"},
	"write-root":      {"EROFS", "EACCES"},
	"write-config":    {"EROFS", "EACCES"},
	"append-passwd":   {"EROFS", "EACCES"},
	"mount":           {"EPERM"},
	"remount":         {"EPERM"},
	"unmount":         {"EPERM"},
	"fsopen":          {"EPERM"},
	"chroot":          {"EPERM"},
	"mknod":           {"EPERM", "EACCES"},
	"fill-tmp":        {"ENOSPC"},
	"run-from-tmp":    {"EACCES"},
	"root-again":      {"EPERM", "EINVAL"},
	"groups-again":    {"EPERM", "EINVAL"},
	"setuid":          {"no effect"},
	"shadow":          {"ENOENT"},
	"environments":    {"no effect"},
	"ptrace":          {"EPERM"},
	"read-memory":     {"EPERM"},
	"signal":          {"ESRCH", "EPERM"},
	"tcp":             {"ENETUNREACH", "EACCES"},
	"udp":             {"ENETUNREACH"},
	"abstract":        {"ECONNREFUSED", "EPERM"},
	"raw-socket":      {"EPERM"},
	"packet-socket":   {"EAFNOSUPPORT"},
	"netlink":         {"EAFNOSUPPORT"},
	"key":             {"EPERM"},
	"user-namespace":  {"EPERM"},
	"mount-namespace": {"EPERM"},
	"net-namespace":   {"EPERM"},
	"join-namespace":  {"EPERM"},
	"clone3":          {"ENOSYS"},
	"bpf":             {"EPERM"},
	"perf":            {"EPERM"},
	"io_uring":        {"EPERM"},
	"aio":             {"EPERM"},
	"lease":           {"EPERM"},
	"forge-tag":       {"EPERM", "EINVAL"},
	"handles":         {"EPERM"},
	"reboot":          {"EPERM"},
	"host-name":       {"EPERM"},
	"persona":         {"EPERM"},
	"type-ahead":      {"EPERM"},
	"settings":        {"ENOENT", "EACCES"},
	"kernel-log":      {"ENOENT"},
	"disks":           {"no effect"},
	"parent-program":  {"ENOENT", "EACCES"},
	"parent-memory":   {"ENOENT", "EACCES"},
	"control-groups":  {"ENOENT"},
}

// TestT72Attacks: SPEC-TOOLS 7.2, all but the limits. What works for root on
// this machine does not work in a sandbox, whoever Orla is.
func TestT72Attacks(t *testing.T) {
	needRoot(t)
	if got, want := slices.Sorted(maps.Keys(fails)), slices.Sorted(maps.Keys(attacks)); !slices.Equal(got, want) {
		t.Fatalf("attacks %q, of which it is said how they end: %q", want, got)
	}
	ground := newGround(t)
	inside := map[string]map[string]string{
		"root's":   endings(said(t, ground.launcher, ground.spec(all, ground.allArgs()))),
		"a user's": endings(ground.byUser(t)),
	}
	for name, allowed := range fails {
		t.Run(name, func(t *testing.T) {
			if got := ground.outside(t, name); got != "done" {
				t.Errorf("outside it ends with %q: the attack attacks nothing", got)
			}
			for whose, ends := range inside {
				if !slices.Contains(allowed, ends[name]) {
					t.Errorf("in %s sandbox it ends with %q; want one of %q", whose, ends[name], allowed)
				}
			}
		})
	}
}

// endings reads how attacks ended.
func endings(text string) map[string]string {
	ends := map[string]string{}
	for line := range strings.Lines(text) {
		name, end, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		ends[name] = end
	}
	return ends
}

// ground is where attacks happen: a host, and targets on this machine.
type ground struct {
	launcher launch.Launcher
	self     string // the attacker's program
	folder   string // exposed, with a setuid program in it
	args     map[string]string
}

func newGround(t *testing.T) *ground {
	t.Helper()
	host, _ := newHost(t)
	g := &ground{launcher: host.Launcher(sandbox.Options{}), folder: t.TempDir()}
	for folder, mode := range map[string]os.FileMode{g.folder: 0o777, filepath.Dir(g.folder): 0o755} { // nothing but the sandbox is to be in the way
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g.self = clone(t, test, filepath.Join(g.folder, "attacker"), 0o755)
	program := clone(t, "/usr/bin/id", filepath.Join(g.folder, "id"), 0o755|os.ModeSetuid)
	victim := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	victim.Env = []string{"SECRET=hunter2-of-another"}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = victim.Process.Kill(), victim.Wait() })
	g.args = map[string]string{
		"write": filepath.Join(g.folder, "new"), "setuid": program, "environments": "hunter2-of-*another", "signal": strconv.Itoa(victim.Process.Pid),
		"tcp": listen(t, "tcp", "127.0.0.1:0"), "abstract": listen(t, "unix", "@orla-attack-"+strconv.Itoa(os.Getpid())), "udp": receive(t),
	}
	return g
}

func clone(t *testing.T, from, to string, mode os.FileMode) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(to, data, 0o700), os.Chmod(to, mode)); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	return to
}

// byUser returns how the attacks end inside a sandbox of an Orla that is an
// ordinary user: another process, to which some cgroups were given.
func (g *ground) byUser(t *testing.T) string {
	t.Helper()
	const nobody = 65534
	cmd := exec.CommandContext(t.Context(), g.self)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0", userVar + "=" + g.folder}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	stdin, err := cmd.StdinPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	give(t, nobody, cmd.Process.Pid)
	_, err = stdin.Write([]byte(g.allArgs()))
	if err := errors.Join(err, stdin.Close(), cmd.Wait()); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return stdout.String()
}

func (g *ground) allArgs() string {
	var lines strings.Builder
	for name, arg := range g.args {
		fmt.Fprintln(&lines, name, arg)
	}
	return lines.String()
}

// give moves a process to cgroups of its user's, of this process's own.
func give(t *testing.T, uid, pid int) {
	t.Helper()
	root, why := cgroup.Claim(slog.New(slog.DiscardHandler))
	if root == nil {
		needs.Missing(t, "no cgroups can be made: %s", why)
	}
	group, err := root.New("nobody", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
		root.Close()
	})
	if err := group.Add(pid); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if !strings.Contains(fields[2], "/capsule-nobody") {
			continue
		}
		dir := "/sys/fs/cgroup/" + fields[1] + fields[2]
		files, _ := filepath.Glob(dir + "/cgroup.procs")
		for _, path := range append(files, dir) {
			if err := os.Chown(path, uid, uid); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func receive(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

// outside tries an attack as root on this machine, where only what it does to
// mounts and names stays its own.
func (g *ground) outside(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), g.self)
	cmd.Env = attackEnv(name, g.args[name])
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Cloneflags: unix.CLONE_NEWUTS}
	if name == "setuid" { // whoever is root needs no such program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: sandbox.ID, Gid: sandbox.ID}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// attackEnv has the test binary attack. Under the race detector it would sleep
// a second at its end.
func attackEnv(name, arg string) []string {
	return []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0", attackVar + "=" + name, argVar + "=" + arg}
}

func (g *ground) spec(name, arg string) launch.Spec {
	return launch.Spec{
		Path: g.self, Argv: []string{g.self}, Env: attackEnv(name, arg),
		Input: []byte{}, Expose: []string{g.self, g.folder}, Whole: true,
	}
}

// run runs a process to its end, and returns what it said.
func run(t testing.TB, l launch.Launcher, spec launch.Spec) (stdout, stderr string, p launch.Process) {
	t.Helper()
	p, err := l.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr = output(p)
	return stdout, stderr, p
}

// output returns what a process prints until its end.
func output(p launch.Process) (stdout, stderr string) {
	_, out, errs := p.Streams()
	said, _ := io.ReadAll(out)
	faults, _ := io.ReadAll(errs)
	<-p.Exited()
	_, _ = out.Close(), errs.Close()
	<-p.Gone()
	return strings.TrimSpace(string(said)), strings.TrimSpace(string(faults))
}

// said is run for what ends well.
func said(t testing.TB, l launch.Launcher, spec launch.Spec) string {
	t.Helper()
	stdout, stderr, p := run(t, l, spec)
	if code := p.Exit().Code; code != 0 {
		t.Errorf("it exited with %d: %s", code, stderr)
	}
	return stdout
}
