package cgroup

import (
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestLegacyPlaces: the folders of a process in the hierarchies of version 1 are
// found by what the kernel says of them, however they are mounted.
func TestLegacyPlaces(t *testing.T) {
	const apart = "1 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n2 0 0:2 / /cg/pids rw - cgroup cgroup rw,pids\n3 0 0:3 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n4 0 0:4 / /cg/unified rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct {
		name, cgroups, mounts string
		want                  map[string]string
	}{
		{"all", "4:memory:/a\n3:pids:/\n2:cpu,cpuacct:/b\n1:name=systemd:/x\n0::/c\n", apart, map[string]string{"memory": "/cg/memory/a", "pids": "/cg/pids", "cpu": "/cg/cpu,cpuacct/b"}},
		{"none", "0::/c\n", apart, map[string]string{}},
		{"of another namespace", "4:memory:/../a\n", apart, map[string]string{}},
		{"not mounted", "4:memory:/a\n", "4 0 0:4 / /cg/unified rw - cgroup2 cgroup2 rw\n", map[string]string{}},
		{"a part is mounted", "4:memory:/docker/1/x\n", "1 0 0:1 /docker/1 /cg/memory ro - cgroup cgroup rw,memory\n", map[string]string{"memory": "/cg/memory/x"}},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"cgroup": c.cgroups, "mountinfo": c.mounts} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := legacy(filepath.Join(dir, "cgroup"), filepath.Join(dir, "mountinfo"))
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

// TestClaim: where nobody manages the cgroups, root makes them for itself, with
// limits that are read back, and leaves none.
func TestClaim(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	root, reason := Claim(log)
	if root == nil {
		t.Skipf("SKIPPED: %s", reason)
	}
	dirs := root.folders()
	want := Limits{Memory: 64 << 20, CPUs: 0.5, Pids: 9}
	g, err := root.New("weather", want)
	if err != nil {
		t.Fatal(err)
	}
	if g.Applied() != want {
		t.Errorf("applied: %+v; want %+v", g.Applied(), want)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if u := g.Usage(); !slices.Equal(u.Processes, []int{cmd.Process.Pid}) || !g.populated() {
		t.Errorf("it has %+v, populated %t", u, g.populated())
	}
	if g.OutOfMemory() {
		t.Error("it is out of memory")
	}
	g.Kill()
	_ = cmd.Wait() // it was killed
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	root.Close()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is there", dir)
		}
	}
}

// TestClaimSweeps: what an Orla left that was killed is removed by the next, and
// what one has that lives is not.
func TestClaimSweeps(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dead, reason := Claim(log)
	if dead == nil {
		t.Skipf("SKIPPED: %s", reason)
	}
	swept := kill(t, dead, Limits{})

	living, reason := Claim(log)
	if living == nil {
		t.Fatal(reason)
	}
	defer living.Close()
	swept()
	other, reason := Claim(log)
	if other == nil {
		t.Fatal(reason)
	}
	other.Close()
	if _, err := os.Stat(living.Dir()); err != nil {
		t.Errorf("of one that lives: %v", err)
	}
}

// kill leaves a claim as an Orla does that is killed: with a process in it, and
// nobody who holds it. swept looks whether both are gone.
func kill(t *testing.T, dead *Root, limits Limits) (swept func()) {
	t.Helper()
	g, err := dead.New("weather", limits)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, lock := range dead.locks {
		_ = lock.Close() // as when it is killed
	}
	return func() {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("what was in the cgroup lives")
		}
		for _, dir := range dead.folders() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is there", dir)
			}
		}
	}
}

// TestClaimSweepsBeside: each session may have a cgroup of its own, so that what an
// Orla left that was killed is found from another one too, in all hierarchies.
func TestClaimSweepsBeside(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	here, err := legacy("/proc/self/cgroup", "/proc/self/mountinfo")
	if err != nil || len(here) != len(controllers) || os.Geteuid() != 0 {
		t.Skipf("SKIPPED: root has no hierarchies of version 1 here: %v, %v", here, err)
	}
	session := func() map[string]string {
		places := map[string]string{}
		for c, dir := range here {
			place, err := os.MkdirTemp(dir, "session-*") //nolint:usetesting // it is a folder of the kernel's
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.Remove(place); err != nil {
					t.Error(err)
				}
			})
			places[c] = place
		}
		return places
	}
	first := session()
	claimed := func(places map[string]string) *Root {
		r, err := claim(places, log)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	dead, living := claimed(first), claimed(first)
	swept := kill(t, dead, Limits{Pids: 9})

	claimed(session()).Close()
	swept()
	if living.Lost() {
		t.Error("of one that lives, too")
	}
	living.Close()
	if !living.Lost() || (*Root)(nil).Lost() {
		t.Error("that it is removed is not seen")
	}
}

// TestSet: a limit holds if it is read back, rounded to whole pages at most.
func TestSet(t *testing.T) {
	for _, c := range []struct {
		value, kept string
		want        bool
	}{
		{"1000000", "999424", true},
		{"1000000", "1000000", true},
		{"64", "max", false},
		{"1000000", "9223372036854771712", false},
		{"50000 100000", "50000 100000", true},
		{"50000 100000", "max 100000", false},
		{"1000000", "1", false},
		{"64", "", false},
	} {
		if got := kept(c.value, c.kept); got != c.want {
			t.Errorf("kept(%q, %q) = %t", c.value, c.kept, got)
		}
	}
	if set(t.TempDir(), "none", "1") {
		t.Error("it is set in a file that is not there")
	}
}
