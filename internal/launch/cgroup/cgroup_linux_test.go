package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// asOrla makes the test binary a process that opens the cgroup it is in.
const asOrla = "ORLA_TEST_CGROUP"

func TestMain(m *testing.M) {
	if os.Getenv(asOrla) == "" {
		os.Exit(m.Run())
	}
	root, reason := Open(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	fmt.Printf("root %t: %s\n", root != nil, reason)
	fmt.Print(read("/proc/self", "cgroup"), "\n.\n")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	root.Close()
}

// TestOwnCgroup: the folder of a process's cgroup is found by what the kernel
// says of it, wherever it is mounted (SPEC K3).
func TestOwnCgroup(t *testing.T) {
	const unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	const hybrid = "42 32 0:39 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n43 32 0:40 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ name, cgroups, mounts, want, why string }{
		{"unified", "0::/system.slice/orla.service\n", unified, "/sys/fs/cgroup/system.slice/orla.service", ""},
		{"hybrid", "4:memory:/a\n1:name=systemd:/b\n0::/c\n", hybrid, "/sys/fs/cgroup/unified/c", ""},
		{"a part is mounted", "0::/docker/1/x\n", "30 23 0:26 /docker/1 /my\\040groups rw - cgroup2 c rw\n", "/my groups/x", ""},
		{"another part is mounted", "0::/docker/2\n", "30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 c rw\n", "", "no cgroup filesystem"},
		{"of another namespace", "0::/../other\n", unified, "", "namespace"},
		{"version 1 only", "4:memory:/a\n", hybrid, "", "no cgroup of version 2"},
	} {
		dir := t.TempDir()
		cgroups, mounts := filepath.Join(dir, "cgroup"), filepath.Join(dir, "mountinfo")
		for path, text := range map[string]string{cgroups: c.cgroups, mounts: c.mounts} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := own(cgroups, mounts)
		if got != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.why)
		}
	}
}

// TestNamesOfGroups: a name is a folder's, and no two names are one.
func TestNamesOfGroups(t *testing.T) {
	for name, want := range map[string]string{
		"weather": "weather", "a.b-c_D9": "a.b-c_D9", "a/b": "a%2fb", "a%2fb": "a%252fb", "..": "..", "é~2": "%c3%a9%7e2",
	} {
		if got := escape(name); got != want {
			t.Errorf("escape(%q) = %q; want %q", name, got, want)
		}
	}
}

func TestCPUMax(t *testing.T) {
	for cpus, want := range map[float64]string{0.5: "50000 100000", 2: "200000 100000", 0.001: "1000 100000"} {
		if got := cpuMax(cpus); got != want {
			t.Errorf("cpuMax(%v) = %q; want %q", cpus, got, want)
		}
	}
}

// TestLimitsAreWritten: each limit goes to its file, and holds only if that is
// so (SPEC K3). The files are plain ones here.
func TestLimitsAreWritten(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"memory.max", "memory.swap.max", "memory.oom.group", "pids.max"} { // but no cpu.max
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &Group{dir: dir, root: &Root{has: []string{"memory", "cpu"}}}
	g.bound(Limits{Memory: 256 << 20, CPUs: 0.5, Pids: 64})
	if want := (Limits{Memory: 256 << 20}); g.Applied() != want {
		t.Errorf("applied: %+v; want %+v", g.Applied(), want)
	}
	for file, want := range map[string]string{"memory.max": "268435456", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": ""} {
		if got := read(dir, file); got != want {
			t.Errorf("%s = %q; want %q", file, got, want)
		}
	}
	for text, want := range map[string]bool{"low 0\noom 1\noom_kill 0\n": false, "oom_kill 2\noom_group_kill 1\n": true} {
		if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := g.OutOfMemory(); got != want {
			t.Errorf("OutOfMemory() = %t with %q", got, text)
		}
	}
}

// newCgroup makes a cgroup of the real kernel's. Where the test may not, it is skipped.
func newCgroup(t *testing.T) string {
	t.Helper()
	here, err := own("/proc/self/cgroup", "/proc/self/mountinfo")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	dir, err := os.MkdirTemp(here, "orla-test-*") //nolint:usetesting // it is a folder of the kernel's
	if err != nil {
		t.Skipf("SKIPPED: no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		g := &Group{dir: dir}
		g.Kill()
		if err := g.killWithin(time.Minute); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// mark marks a cgroup as systemd does when it delegates one.
func mark(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
}

// in starts a command in a cgroup.
func in(t *testing.T, dir string, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd
}

// orla starts the test binary in a cgroup, and returns what it says of it.
func orla(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asOrla+"=1")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in(t, dir, cmd)
	var said bytes.Buffer
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil || line == ".\n" {
			return said.String()
		}
		said.WriteString(line)
	}
}

var eventually = testkit.Eventually

// TestK3NobodyDelegated: a cgroup without the mark stays as it is.
func TestK3NobodyDelegated(t *testing.T) {
	dir := newCgroup(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: to an ordinary user, one of its own below another's is delegated")
	}
	if said := orla(t, dir); !strings.Contains(said, "root false: the cgroup is not delegated") || strings.Contains(said, ownLeaf) {
		t.Errorf("it says %q", said)
	}
	if dirs := (&Group{dir: dir}).tree(); len(dirs) != 1 {
		t.Errorf("there are %q", dirs)
	}
}

// TestK3OrlaMovesToALeaf: Orla takes a delegated cgroup and moves into a leaf of
// it; a second Orla there takes nothing.
func TestK3OrlaMovesToALeaf(t *testing.T) {
	dir := newCgroup(t)
	mark(t, dir)
	if said := orla(t, dir); !strings.Contains(said, "root true") || !strings.Contains(said, "/"+ownLeaf+"\n") {
		t.Errorf("it says %q", said)
	}
	if said := orla(t, dir); !strings.Contains(said, "root false: another Orla") || strings.Contains(said, ownLeaf) {
		t.Errorf("a second one says %q", said)
	}
}

// TestK3LeftoversAreSwept: what a killed Orla left in its cgroups is gone when
// the next one starts, and nothing else.
func TestK3LeftoversAreSwept(t *testing.T) {
	dir := newCgroup(t)
	mark(t, dir)
	old, other := filepath.Join(dir, groupPrefix+"old"), filepath.Join(dir, "other")
	for _, d := range []string{old, filepath.Join(old, "inner"), other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	left := in(t, filepath.Join(old, "inner"), exec.CommandContext(t.Context(), "sleep", "600"))
	stranger := in(t, other, exec.CommandContext(t.Context(), "sleep", "600"))
	said := orla(t, dir)
	if !strings.Contains(said, "root true") || !strings.Contains(said, "killed=1") {
		t.Errorf("it says %q", said)
	}
	if err := left.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("what was left ended with %v", err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("its cgroup is there")
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a stranger: %v", err)
	}
}

// TestK3KillsATreeWhole: cgroup.kill reaches what hides from everybody else.
func TestK3KillsATreeWhole(t *testing.T) {
	root := &Root{dir: newCgroup(t), log: slog.New(slog.DiscardHandler), names: map[string]bool{}}
	g, err := root.New("weather", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	twin, err := root.New("weather", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(g.dir) != "capsule-weather" || filepath.Base(twin.dir) != "capsule-weather~2" {
		t.Errorf("they are %s and %s", g.dir, twin.dir)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "setsid env -i sh -c 'sleep 600 & exec sleep 600' & wait")
	in(t, g.dir, cmd)
	eventually(t, "three processes", func() bool { return len(g.Pids()) == 3 })
	neighbour := in(t, twin.dir, exec.CommandContext(t.Context(), "sleep", "600"))
	if u := g.Usage(); len(u.Processes) != 3 || !g.populated() {
		t.Errorf("usage %+v, populated %t", u, g.populated())
	}
	g.Kill()
	eventually(t, "an empty cgroup", func() bool { return !g.populated() })
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if !twin.populated() {
		t.Error("the neighbour is dead")
	}
	// A process that was started elsewhere.
	moved, err := root.New("weather", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := moved.Add(neighbour.Process.Pid); err != nil {
		t.Error(err)
	}
	if got := moved.Pids(); len(got) != 1 || got[0] != neighbour.Process.Pid {
		t.Errorf("Pids() = %v", got)
	}
	for _, g := range []*Group{moved, twin} {
		g.Kill()
		eventually(t, "an empty cgroup", func() bool { return !g.populated() })
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// TestNoGroup: what has no cgroup of its own is left alone.
func TestNoGroup(t *testing.T) {
	var root *Root
	g, err := root.New("weather", Limits{Memory: 1})
	if g != nil || err != nil {
		t.Fatalf("New() = %v, %v", g, err)
	}
	g.Kill()
	if g.Pids() != nil || g.populated() || g.OutOfMemory() || g.Applied() != (Limits{}) || g.Remove() != nil {
		t.Error("none is one")
	}
	root.Close()
}

// populated reports whether a process lives in the Group or below it. Zombies
// do not count.
func (g *Group) populated() bool {
	if g != nil && g.legacy != nil {
		return len(g.Pids()) > 0
	}
	return g != nil && strings.Contains("\n"+read(g.dir, "cgroup.events"), "\npopulated 1")
}
