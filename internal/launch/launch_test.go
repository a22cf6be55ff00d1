package launch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/guard"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// The test binary is also the guard and a stand-in for Orla.
const (
	asGuard    = "guard"
	asOrla     = "stand-in"
	asAlone    = "stand-in-without-guard"
	asStayer   = "stand-in-that-stays-with-it"
	asLoner    = "stand-in-that-stays-with-it-without-guard"
	asStopper  = "stand-in-that-stops"
	asGoing    = "stand-in-that-takes-its-time-to-go"
	asFiltered = "filtered"
	asFirst    = "stand-in-as-first-process"
	asCounter  = "stand-in-that-counts"
	asFinisher = "stand-in-that-finishes"
	asRunner   = "stand-in-that-runs"
	asCrowd    = "stand-in-with-many"
	asCellular = "stand-in-in-a-cgroup"
	asDeaf     = "guard-that-does-not-end"
	asLater    = "stand-in-whose-guard-comes-later"
)

// modes are what the test binary does when its first argument says so.
var modes = map[string]func(args []string){
	asGuard:    func(args []string) { guardElsewhere(args[0]) },
	asOrla:     func(args []string) { standIn(args[0], guardCommand()) },
	asAlone:    func(args []string) { standIn(args[0], nil) },
	asStayer:   func(args []string) { standInStay(args[0], guardCommand()) },
	asLoner:    func(args []string) { standInStay(args[0], nil) },
	asStopper:  func(args []string) { standInStop(args[0]) },
	asCounter:  func([]string) { standInCount() },
	asFinisher: func(args []string) { standInFinish(args[0]) },
	asRunner:   func(args []string) { standInRun(args[0]) },
	asCrowd:    func(args []string) { standInCrowd(args[0]) },
	asCellular: func(args []string) { standInCell(args[0]) },
	asFirst:    func(args []string) { standInFirst(args[0]) },
	asGoing:    func(args []string) { standInGoing(args[0]) },
	asLater:    func(args []string) { standInLater(args[0]) },
	asDeaf:     func([]string) { <-time.After(10 * patience) },
	asFiltered: func(args []string) { refuse(args[0], args[1:]) },
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && modes[os.Args[1]] != nil {
		modes[os.Args[1]](os.Args[2:])
	}
	leaks.Main(m)
}

// guardElsewhere runs the guard on another thread than the first, as may happen
// to any goroutine.
func guardElsewhere(instance string) {
	runtime.LockOSThread()
	code := make(chan int)
	go func() { code <- guard.Run(instance) }()
	os.Exit(<-code)
}

// standIn starts a script the way Orla does, says so, and waits to be killed.
func standIn(script string, guard []string) {
	_, p := standInStart(script, guard)
	_, _ = io.Copy(os.Stdout, p.Stdout)
	select {}
}

// standInLater is standIn with a guard that the script's process is the first to need.
func standInLater(script string) {
	l, err := launch.NewLocal(launch.Options{Guard: guardCommand(), GuardLater: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	before, err := l.Start(context.Background(), shell("exit"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	<-before.Gone()
	if children, _ := exec.Command("pgrep", "-P", strconv.Itoa(os.Getpid()), "tool-guard").Output(); len(children) > 0 {
		fmt.Printf("there is a guard that nothing needs: %s\n", children)
		os.Exit(1)
	}
	p, err := l.Guarded().Start(context.Background(), shell(script))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, out, _ := p.Streams()
	_, _ = io.Copy(os.Stdout, out)
	select {}
}

// standInStop stops a script after its first line, which it prints when the
// script's tree is gone.
func standInStop(script string) {
	_, p := standInStart(script, nil)
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	p.Stop()
	<-p.Gone()
	fmt.Print(line)
	os.Exit(0)
}

// standInCount prints how many threads there are before anything is started, without a guard and with one.
func standInCount() {
	for _, guard := range [][]string{nil, guardCommand()} {
		l, err := launch.NewLocal(launch.Options{Guard: guard, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		threads, _ := os.ReadDir("/proc/self/task")
		fmt.Println(len(threads))
		l.Close()
	}
	os.Exit(0)
}

// going is how many processes standInGoing leaves.
const going = 20

// standInGoing starts a guard and some sleepers. Then it closes the guard's pipe without a
// goodbye, and lives on.
func standInGoing(instance string) {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	guard := exec.Command(guardCommand()[0], asGuard, instance)
	guard.Env = []string{} // it bears no mark
	guard.ExtraFiles = []*os.File{r, r}
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := guard.Start(); err != nil {
		panic(err)
	}
	for range going {
		sleeper := exec.Command("sleep", "300")
		sleeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := sleeper.Start(); err != nil {
			panic(err)
		}
		fmt.Println(sleeper.Process.Pid)
	}
	_ = w.Close() // nothing was written to it
	select {}
}

func standInStart(script string, guard []string) (*launch.Local, *launch.LocalProcess) {
	l, err := launch.NewLocal(launch.Options{Guard: guard, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, err := l.Start(context.Background(), shell(script))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return l, p
}

// patience bounds every wait of these tests.
const patience = time.Minute

func guardCommand() []string {
	self, err := guard.Program()
	if err != nil {
		panic(err)
	}
	return []string{self, asGuard}
}

func shell(script string) launch.Spec {
	return launch.Spec{
		Path:  "/bin/sh",
		Argv:  []string{"/bin/sh", "-c", script},
		Env:   []string{"PATH=" + os.Getenv("PATH"), "SELF=" + os.Getenv("SELF"), "ORPHAN=" + os.Getenv("ORPHAN")},
		Dir:   "/",
		Grace: 300 * time.Millisecond,
	}
}

func newLocal(t *testing.T) *launch.Local {
	t.Helper()
	l, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func start(t *testing.T, l *launch.Local, spec launch.Spec) *launch.LocalProcess {
	t.Helper()
	p, err := l.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
			_ = f.Close()
		}
	})
	return p
}

// within fails the test when c does not close in time.
func within(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not happen within %s", what, patience)
	}
}

var eventually = testkit.Eventually

// pidFrom reads one line that holds a process id.
func pidFrom(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("read a pid: %v (got %q)", err, line)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := stat[strings.LastIndexByte(string(stat), ')')+1:]
	return strings.Fields(string(rest))[0] != "Z"
}

func TestStreamsAndExitCode(t *testing.T) {
	p := start(t, newLocal(t), shell("cat; echo err >&2; exit 7"))
	if _, err := io.WriteString(p.Stdin, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := p.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout)
	if err != nil || string(out) != "hello" {
		t.Errorf("stdout = %q, %v; want hello", out, err)
	}
	errOut, err := io.ReadAll(p.Stderr)
	if err != nil || string(errOut) != "err\n" {
		t.Errorf("stderr = %q, %v; want err", errOut, err)
	}
	within(t, p.Exited(), "the exit")
	if code := p.Exit().Code; code != 7 {
		t.Errorf("exit code = %d; want 7", code)
	}
}

func TestProcessLeadsItsOwnGroup(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell("read x"))
	group, err := syscall.Getpgid(p.Pid())
	if err != nil || group != p.Pid() {
		t.Errorf("group = %d, %v; want %d", group, err, p.Pid())
	}
}

// A tool that asks for a password on the terminal must fail, not hang.
func TestProcessHasNoTerminal(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell("read x"))
	session, err := unix.Getsid(p.Pid())
	if err != nil || session != p.Pid() {
		t.Errorf("session = %d, %v; want its own, %d", session, err, p.Pid())
	}
}

// SPEC C4: SIGTERM, the grace, SIGKILL, for the whole group.
func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell(`trap "" TERM; sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & echo $$; while :; do sleep 1; done`))
	r := bufio.NewReader(p.Stdout)
	pids := []int{pidFrom(t, r), pidFrom(t, r)}
	began := time.Now()
	p.Stop()
	within(t, p.Gone(), "the end of the tree")
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("killed after %s, before the grace was over", took)
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

// A polite leader must not cancel the end of a child that is deaf.
func TestDeafChildDiesAfterPoliteLeader(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell(`sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & wait`))
	child := pidFrom(t, bufio.NewReader(p.Stdout))
	p.Stop()
	within(t, p.Gone(), "the end of the tree")
	eventually(t, "the deaf child is gone", func() bool { return !alive(child) })
}

// SPEC C4: those that changed their group die too.
func TestStopReachesThoseThatLeftTheGroup(t *testing.T) {
	for _, needed := range []string{"setsid", "bash"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip("a command is not here:", err)
		}
	}
	for name, script := range map[string]string{
		"child":                  `setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & wait`,
		"orphan":                 `sh -c "setsid sh -c 'echo \$\$; while :; do sleep 1; done' &"; while :; do sleep 1; done`,
		"child, no marks":        `setsid env -i PATH="$PATH" sh -c 'echo $$; while :; do sleep 1; done' & wait`,
		"orphaned job, no marks": `bash -c 'set -m; env -i sh -c "echo \$\$; while :; do sleep 1; done" &'; sleep 100`,
		"daemon, no marks":       unmarkedDaemon + `exec sleep 100`,
		"setsid of a setsid'":    `setsid sh -c "setsid sh -c 'echo \$\$; while :; do sleep 1; done' & wait" & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocal(t)
			p := start(t, l, shell(script))
			stray := pidFrom(t, bufio.NewReader(p.Stdout))
			p.Stop()
			within(t, p.Gone(), "the end of the tree")
			eventually(t, "the stray is gone", func() bool { return !alive(stray) })
		})
	}
}

// What a tool leaves in its group ends with it; the exit is known at once.
func TestLeftoversEndWithTheLeader(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell(`sleep 100 & echo $!`))
	child := pidFrom(t, bufio.NewReader(p.Stdout))
	within(t, p.Exited(), "the exit")
	eventually(t, "the leftover is gone", func() bool { return !alive(child) })
}

// What a tool leaves has a moment to become a daemon, as it would under a shell.
func TestDaemonOutlivesALeaderThatEndedWell(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("no setsid command here:", err)
	}
	l := newLocal(t)
	for range 5 { // on a busy machine the moment may pass before it has begun
		p := start(t, l, shell(`setsid sh -c 'echo $$; exec sleep 100' & exit`))
		line, err := bufio.NewReader(p.Stdout).ReadString('\n')
		if err != nil {
			continue // it was ended before it could leave the group
		}
		daemon, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGKILL) })
		within(t, p.Gone(), "the end of the group")
		if alive(daemon) {
			return
		}
	}
	t.Error("the daemon is gone each time; it left the group on purpose")
}

// A stopped process can obey SIGTERM only when it is made to go on.
func TestStoppedProcessMayEndByItself(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell(`trap "echo bye; exit" TERM; echo $$; kill -STOP $$; while :; do sleep 1; done`))
	r := bufio.NewReader(p.Stdout)
	pid := pidFrom(t, r)
	eventually(t, "it is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	p.Stop()
	if line, err := r.ReadString('\n'); err != nil || line != "bye\n" {
		t.Errorf("read %q, %v; want its last word", line, err)
	}
	within(t, p.Gone(), "the end of a stopped process")
}

func TestBusyFileIsTriedAgain(t *testing.T) {
	l := newLocal(t)
	path := filepath.Join(t.TempDir(), "busy")
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(program); err != nil {
		t.Fatal(err)
	}
	spec := launch.Spec{Path: path, Argv: []string{path}, Dir: "/"}
	if _, err := l.Start(t.Context(), spec); fault.CodeOf(err) != fault.StartFailed {
		t.Errorf("start of a file that stays open: %v; want start_failed", err)
	}
	for {
		closed, began := make(chan time.Duration), time.Now()
		go func() {
			<-time.After(30 * time.Millisecond) // within the tries' span, which ends after 250 ms
			_ = f.Close()
			closed <- time.Since(began)
		}()
		p, err := l.Start(t.Context(), spec)
		if took := <-closed; err != nil && took > 200*time.Millisecond {
			t.Logf("it was closed after %s: %v", took, err) // on a busy machine: again
			if f, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		within(t, p.Exited(), "the exit")
		return
	}
}

// SPEC C4: a start failure says why.
func TestStartFailuresSayWhatToDo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xff\xff" + strings.Repeat("\x00", 44)
	for _, c := range []struct {
		name, path, dir, want string
		code                  fault.Code
	}{
		{"gone", filepath.Join(dir, "none"), dir, "is not there any more", fault.StartFailed},
		{"not executable", write("plain", "#!/bin/sh\n", 0o644), dir, "chmod +x", fault.UnsupportedTool},
		{"no shebang", write("bare", "echo hi\n", 0o755), dir, "script without a shebang line", fault.UnsupportedTool},
		{"empty", write("empty", "", 0o755), dir, "is empty", fault.UnsupportedTool},
		{"other machine", write("foreign", foreign, 0o755), dir, "another kind of machine", fault.UnsupportedTool},
		{"no interpreter", write("missing", "#!/no/such/interpreter\n", 0o755), dir, "interpreter or a loader that is not installed", fault.UnsupportedTool},
		{"no folder", "/bin/true", filepath.Join(dir, "nowhere"), "working directory", fault.StartFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newLocal(t).Start(t.Context(), launch.Spec{Path: c.path, Argv: []string{c.path}, Dir: c.dir})
			f, ok := errors.AsType[*fault.Error](err)
			if !ok || f.Code != c.code || !strings.Contains(f.Reason, c.want) {
				t.Errorf("error = %v; want %s with %q", err, c.code, c.want)
			}
		})
	}
}

func TestHugeArgumentsAreTheCallersFault(t *testing.T) {
	l := newLocal(t)
	spec := launch.Spec{Path: "/bin/true", Argv: []string{"true", strings.Repeat("x", 1<<20)}, Dir: "/"}
	if _, err := l.Start(t.Context(), spec); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("error = %v; want invalid_input", err)
	}
}

func TestClosedLauncherStartsNothing(t *testing.T) {
	l, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	l.Close() // the second is nothing
	if _, err := l.Start(t.Context(), launch.Spec{Path: "/bin/true", Argv: []string{"true"}}); err == nil {
		t.Error("a closed launcher started a process")
	}
}

// A tool, a child in its group, and one that left it: each prints its id.
const markedTree = `echo $$
sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' &
setsid sh -c 'echo $$; while :; do sleep 1; done' &
`

// One that cleared its environment, and so the mark.
const unmarkedChild = `env -i PATH="$PATH" sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' &
`

// One that became a daemon as redis, nginx and postgres do: it left its session
// twice, its parents are gone, and its environment tells nothing.
const unmarkedDaemon = `setsid env -i PATH="$PATH" sh -c 'setsid sh -c "echo \$\$; exec sleep 100" & exit'
`

// SPEC D3: nothing outlives Orla, even when it is killed with SIGKILL.
func TestNothingOutlivesAKilledOrla(t *testing.T) {
	killAStandIn(t, 5, markedTree+unmarkedChild+unmarkedDaemon)
}

// SPEC D3, R4: nor what needs a guard in an Orla that had none before, as orla call needs it to install packages.
func TestD3AGuardThatComesLater(t *testing.T) {
	needCommands(t, "setsid", "pgrep")
	kill(t, asLater, 5, markedTree+unmarkedChild+unmarkedDaemon+"wait")
}

// SPEC D3: nor does what runs a call of a simple tool.
func TestNothingOutlivesAnOrlaKilledInARun(t *testing.T) {
	kill(t, asStayer, 5, markedTree+unmarkedChild+unmarkedDaemon+"wait")
}

// killAStandIn kills a stand-in for Orla that runs a script, and fails the test
// when a process lives on whose id the script printed, of which there are ids. The test binary is run
// with the arguments before, which may be none.
func killAStandIn(t *testing.T, ids int, script string, before ...string) {
	t.Helper()
	kill(t, asOrla, ids, script+"wait", before...)
}

// kill is killAStandIn in any mode that prints what its script does.
func kill(t *testing.T, mode string, ids int, script string, before ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killAfter(t, exec.Command(self, append(before, mode, script)...), ids, func(int) {})
}

// killAfter kills a stand-in for Orla after it has printed the ids of its tree, and
// prepare has been called with the stand-in's own. It fails the test when one of
// the tree lives on.
func killAfter(t *testing.T, cmd *exec.Cmd, ids int, prepare func(orla int)) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	var pids []int
	for range ids {
		pids = append(pids, pidFrom(t, r))
	}
	prepare(cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d of %v is gone", pid, pids), func() bool { return !alive(pid) })
	}
	_ = cmd.Wait() // it was killed
}

// What an Orla that a tool runs has started is the outer one's too.
func TestNothingOutlivesAKilledOrlaOfAnOrla(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SELF", self)
	t.Setenv("ORPHAN", `sh -c "setsid sh -c 'trap \"\" TERM HUP PIPE; echo \$\$; while :; do sleep 1; done' &"; echo $$; sleep 100`)
	killAStandIn(t, 3, `echo $$; "$SELF" `+asOrla+` "$ORPHAN" & `)
}

// The kernel ends the tool itself, guard or no guard.
func TestDeathSignalNeedsNoGuard(t *testing.T) {
	for _, mode := range []string{asAlone, asLoner} {
		t.Run(mode, func(t *testing.T) {
			kill(t, mode, 1, `trap "" TERM HUP PIPE; echo $$; while :; do sleep 1; done`)
		})
	}
}

func TestGuardComesBackAndLeavesNothing(t *testing.T) {
	l, err := launch.NewLocal(launch.Options{Guard: guardCommand(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	first := guardPid(t, os.Getpid(), 0)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := guardPid(t, os.Getpid(), first)
	l.Close()
	eventually(t, "the guard is gone", func() bool { return !alive(second) })
}

// guardPid waits for a guard process of an Orla that is not old.
func guardPid(t *testing.T, orla, old int) (pid int) {
	t.Helper()
	eventually(t, "a guard is there", func() bool {
		children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", orla))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range children {
			data, _ := os.ReadFile(path) // a thread may have ended
			for field := range strings.FieldsSeq(string(data)) {
				candidate, err := strconv.Atoi(field)
				if err != nil || candidate == old || !alive(candidate) {
					continue
				}
				if comm, _ := os.ReadFile("/proc/" + field + "/comm"); string(comm) == "tool-guard\n" {
					pid = candidate
					return true
				}
			}
		}
		return false
	})
	return pid
}
