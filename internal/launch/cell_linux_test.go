package launch_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
)

// standInCell is Orla in a cgroup that was delegated to it: it starts a script
// and says what there is of it, before and after its end, or its stop.
func standInCell(script string) {
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	root, reason := cgroup.Open(log)
	if root == nil {
		fmt.Println("no cgroup:", reason)
		os.Exit(1)
	}
	l, err := launch.NewLocal(launch.Options{Cgroup: root, Log: log})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	spec := shell(script)
	spec.Cell, spec.Whole, spec.Limits = "weather", true, cgroup.Limits{Memory: 1 << 30, Pids: 64}
	p, err := l.Start(context.Background(), spec)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	own, _ := os.ReadFile("/proc/self/cgroup")
	its, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.Pid()))
	fmt.Printf("own %s\nits %s\nheld %+v\n", lastLine(own), lastLine(its), p.Applied())
	lines := bufio.NewScanner(p.Stdout)
	for lines.Scan() && lines.Text() != "." {
		fmt.Println("pid", lines.Text())
	}
	usage := l.Usage([]int{p.Pid()})[p.Pid()]
	fmt.Println("processes", usage.Processes, "memory", usage.RSS > 0, "cpu", usage.CPU > 0)
	p.Finish(50 * time.Millisecond)
	_ = p.Stdin.Close()
	<-p.Gone()
	l.Close()
	left, _ := filepath.Glob(filepath.Join(root.Dir(), "capsule-*"))
	fmt.Println("left", left)
	os.Exit(0)
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// delegatedCgroup makes a cgroup of the real kernel's, marked as systemd does.
func delegatedCgroup(t *testing.T) string {
	t.Helper()
	mount := ""
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			mount = dir
			break
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || mount == "" {
		t.Skip("SKIPPED: there are no cgroups of version 2 here")
	}
	_, here, _ := strings.Cut(lastLine(own), "::")
	dir, err := os.MkdirTemp(filepath.Join(mount, here), "orla-test-*") //nolint:usetesting // it is a folder of the kernel's
	if err != nil {
		t.Skipf("SKIPPED: no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		eventually(t, "the cgroup is empty", func() bool {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
			below, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
			for _, file := range below {
				_ = os.Remove(filepath.Dir(file))
			}
			return os.Remove(dir) == nil
		})
	})
	if err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return dir
}

// inCgroup runs the test binary in a cgroup and returns what it prints.
func inCgroup(t *testing.T, dir string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// hidden is a daemon that nothing but its cgroup tells whose it is: it has a
// session of its own, no environment, the first process as its parent, and
// ignores SIGTERM.
// It begins late: one that is moved into its cgroup takes nobody along.
const hidden = `sleep 0.2; setsid env -i sh -c 'sh -c "trap \"\" TERM; while :; do sleep 1; done" & echo $!' ; echo $$; echo .; read x; exit 0`

// TestK3CellHoldsATreeWhole: a process begins in a cgroup of its own, all that
// it leaves ends with it, however it hides, and the cgroup goes (SPEC K3, D11).
func TestK3CellHoldsATreeWhole(t *testing.T) {
	for name, before := range map[string][]string{
		"clone3":         nil,
		"without clone3": without(unix.SYS_CLONE3), // as filters of containers have it
	} {
		t.Run(name, func(t *testing.T) {
			said := inCgroup(t, delegatedCgroup(t), append(before, asCellular, hidden)...)
			for _, want := range []string{
				"/orla.main\n", "/capsule-weather\n", "memory true cpu true\n", "left []\n",
				"{Memory:1073741824 ", // by the cgroup or by itself, as this machine has it
			} {
				if !strings.Contains(said, want) {
					t.Errorf("it says\n%s\nwant %q", said, want)
				}
			}
			found := 0
			for line := range strings.Lines(said) {
				if text, ok := strings.CutPrefix(strings.TrimSpace(line), "pid "); ok {
					pid, err := strconv.Atoi(text)
					if err != nil || alive(pid) {
						t.Errorf("process %s lives: %v", text, err)
					}
					found++
				}
			}
			if found != 2 {
				t.Errorf("it says\n%s\nwant two processes", said)
			}
		})
	}
}

// TestK3MemoryWithoutACgroup: a limit of memory bounds a process by itself where
// it cannot bound the tree, and what it does not hold is told (SPEC K3).
func TestK3MemoryWithoutACgroup(t *testing.T) {
	spec := shell(`read x; awk '$1 $2 $3 == "Maxdatasize" { print $4 }' /proc/self/limits`)
	spec.Cell, spec.Limits = "weather", cgroup.Limits{Memory: 64 << 20, CPUs: 1, Pids: 9}
	p := start(t, newLocal(t), spec)
	if want := (launch.Applied{Each: cgroup.Limits{Memory: 64 << 20}}); p.Applied() != want {
		t.Errorf("applied: %+v; want %+v", p.Applied(), want)
	}
	if _, err := p.Stdin.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if got := pidFrom(t, bufio.NewReader(p.Stdout)); got != 64<<20 {
		t.Errorf("the limit is %d", got)
	}
}
