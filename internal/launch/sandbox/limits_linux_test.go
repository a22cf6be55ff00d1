//go:build amd64 || arm64

package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/internal/testing/needs"
)

// greed is what a program may take too much of. Each prints how much it got.
var greed = map[string]func(){
	"processes":  takeProcesses,
	"memory":     takeMemory,
	"processors": takeProcessors,
}

const manyProcesses = 100

// takeProcesses starts processes that stay.
func takeProcesses() {
	got := 0
	for range manyProcesses {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if cmd.Start() != nil {
			break
		}
		got++
	}
	fmt.Println(got)
}

const muchMemory = 256 << 20

// takeMemory writes to memory, page by page.
func takeMemory() {
	m, err := unix.Mmap(-1, 0, muchMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := 0; i < len(m); i += os.Getpagesize() {
		m[i] = 1
	}
	fmt.Println(len(m))
}

// takeProcessors computes for a while, and prints how much of one processor
// that took. Where it may, which is not in a sandbox, it goes before all others, so
// that nothing but a limit keeps it from that, however busy the machine is.
func takeProcessors() {
	runtime.LockOSThread()
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
	var before, spent unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before) // of oneself it can be had
	begin := time.Now()
	for time.Since(begin) < 400*time.Millisecond {
		for range 1_000_000 {
			spent.Nsignals++
		}
	}
	_ = unix.Getrusage(unix.RUSAGE_SELF, &spent)
	used := spent.Utime.Nano() + spent.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	fmt.Println(float64(used) / float64(time.Since(begin)))
}

// TestT72Limits: SPEC-TOOLS 7.2: memory 128 MiB, 0.50 CPU, 64 pids. A process
// that wants more of each does not get it, and does where nothing limits it.
func TestT72Limits(t *testing.T) {
	needs.Time(t, "reaches limits")
	needRoot(t)
	g := newGround(t)
	host, local := newHost(t)
	ask := func(l launch.Launcher, limits cgroup.Limits, name string) (float64, launch.Process) {
		t.Helper()
		spec := g.spec(name, "")
		spec.Limits = limits
		stdout, stderr, p := run(t, l, spec)
		if stdout == "" {
			return 0, p
		}
		got, err := strconv.ParseFloat(stdout, 64)
		if err != nil {
			t.Fatalf("%s: %q, %s", name, stdout, stderr)
		}
		return got, p
	}

	free, _ := ask(local.Launcher(), cgroup.Limits{}, "processes")
	got, p := ask(g.launcher, cgroup.Limits{}, "processes")
	if free != manyProcesses || got >= 64 || got < 32 {
		t.Errorf("it has started %g processes, and %g without a sandbox; want less than 64, and %d", got, free, manyProcesses)
	}
	if p.Applied().Tree != sandbox.DefaultLimits {
		t.Errorf("applied: %+v; want %+v", p.Applied(), sandbox.DefaultLimits)
	}
	got, _ = ask(g.launcher, cgroup.Limits{Pids: 32}, "processes")
	if got >= 32 {
		t.Errorf("it has started %g processes; it asked for 32", got)
	}

	free, _ = ask(local.Launcher(), cgroup.Limits{}, "memory")
	got, p = ask(g.launcher, cgroup.Limits{}, "memory")
	if free != muchMemory || got != 0 || !p.Exit().OutOfMemory || p.Exit().Signal != syscall.SIGKILL || p.Exit().Code != 137 {
		t.Errorf("it has taken %g bytes, and %g without a sandbox; it ended as %+v", got, free, p.Exit())
	}
	got, _ = ask(host.Launcher(sandbox.Options{Limits: cgroup.Limits{Memory: 512 << 20}}), cgroup.Limits{}, "memory")
	if got != muchMemory {
		t.Errorf("it has taken %g bytes of 512 MiB", got)
	}

	// It may be given less than the limit, when the machine is busy, and never more.
	got, p = ask(g.launcher, cgroup.Limits{CPUs: 0.05}, "processors")
	free, _ = ask(local.Launcher(), cgroup.Limits{}, "processors")
	if got > 0.1 || free <= 0.1 || p.Applied().Tree.CPUs != 0.05 {
		t.Errorf("it has taken %g of a processor, and %g without a sandbox; it asked for 0.05", got, free)
	}
	// What it did not use of the first 100 ms it may use besides: 50 ms of the 400.
	if got, _ = ask(g.launcher, cgroup.Limits{}, "processors"); got > 0.7 {
		t.Errorf("it has taken %g of a processor; it may have 0.5", got)
	}
}

// TestT72AsksForMore: a tool may only ask for less (SPEC-TOOLS 7.2).
func TestT72AsksForMore(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	l := host.Launcher(sandbox.Options{Limits: cgroup.Limits{Memory: 64 << 20}})
	for _, c := range []struct{ asked, want cgroup.Limits }{
		{cgroup.Limits{}, cgroup.Limits{Memory: 64 << 20, CPUs: 0.5, Pids: 64}},
		{cgroup.Limits{Memory: 1 << 30, CPUs: 4, Pids: 1000}, cgroup.Limits{Memory: 64 << 20, CPUs: 0.5, Pids: 64}},
		{cgroup.Limits{Memory: 32 << 20, CPUs: 0.25, Pids: 32}, cgroup.Limits{Memory: 32 << 20, CPUs: 0.25, Pids: 32}},
	} {
		spec := shell("exit 0")
		spec.Limits = c.asked
		_, _, p := run(t, l, spec)
		if p.Applied().Tree != c.want {
			t.Errorf("asked for %+v it gets %+v; want %+v", c.asked, p.Applied().Tree, c.want)
		}
	}
}

// TestT72FewProcesses: with so few processes that the tool, or what makes its
// sandbox, cannot be started, the error names that limit.
func TestT72FewProcesses(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	for pids := 1; ; pids++ {
		spec := shell("exit 0")
		spec.Limits.Pids = pids
		p, err := host.Launcher(sandbox.Options{}).Start(t.Context(), spec)
		if err == nil {
			_, out, errs := p.Streams()
			_, _ = out.Close(), errs.Close() // it says nothing
			<-p.Gone()
			if pids == 1 || pids > 32 {
				t.Errorf("it runs with %d processes", pids)
			}
			return
		}
		if reason := fault.From(err).Reason; !strings.Contains(reason, fmt.Sprintf("it may have %d processes and threads", pids)) {
			t.Errorf("with %d: %s", pids, reason)
		}
	}
}

// TestT72LostCgroup: the cgroup that sandboxes are made in is made anew when
// somebody has removed it, as those do who clear up.
func TestT72LostCgroup(t *testing.T) {
	needRoot(t)
	host, _ := newHost(t)
	l := host.Launcher(sandbox.Options{})
	spec := shell("exec sleep 1000")
	first, err := l.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	folder := cgroupOf(t, first.Pid())
	first.Kill()
	<-first.Gone()
	if folder == "" {
		t.Skip("SKIPPED: there are no cgroups of version 1, and others cannot be removed")
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	_, _, second := run(t, l, shell("exit 0"))
	if first.Applied() != second.Applied() {
		t.Errorf("applied: %+v; want %+v", second.Applied(), first.Applied())
	}
}
