package launch_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuse refuses system calls as filters of containers do, and runs the test
// binary again with args: with EPERM, but clone3 as if it were not there, since
// they cannot tell what it is for.
func refuse(numbers string, args []string) {
	runtime.LockOSThread()
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{{Code: load}} // the number is the first field
	for field := range strings.SplitSeq(numbers, ",") {
		number, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			panic(err)
		}
		refusal := unix.EPERM
		if number == unix.SYS_CLONE3 {
			refusal = unix.ENOSYS
		}
		filter = append(filter,
			unix.SockFilter{Code: equal, Jf: 1, K: uint32(number)},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(refusal)})
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		fmt.Println("no filter:", err)
		os.Exit(1)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	panic(syscall.Exec(self, append([]string{self}, args...), os.Environ()))
}

// without is the arguments that run the test binary without system calls.
func without(numbers ...int) []string {
	fields := make([]string, 0, len(numbers))
	for _, n := range numbers {
		fields = append(fields, strconv.Itoa(n))
	}
	return []string{asFiltered, strings.Join(fields, ",")}
}

// Before Linux 5.4, and behind some containers' filters, there are no pidfds.
// A process lives as long as it likes there, and Stop ends its whole tree.
func TestWithoutPidfds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	noPidfds := without(unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL)
	const script = `setsid sh -c 'trap "" TERM; sleep 0.2; echo $$; while :; do sleep 1; done' & wait`
	out, err := exec.Command(self, append(noPidfds, asStopper, script)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	stray, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("the script's line: %q; it was ended before it could print one", out)
	}
	eventually(t, "the stray is gone", func() bool { return !alive(stray) })
	killAStandIn(t, 4, markedTree+unmarkedChild, noPidfds...)
}

// If no memory can be shared in the usual way, Orla uses a file; without a place for one, only the marks in
// the environment.
func TestWithoutSharedMemory(t *testing.T) {
	noMemfd := without(unix.SYS_MEMFD_CREATE)
	t.Run("a file", func(t *testing.T) { killAStandIn(t, 4, markedTree+unmarkedChild, noMemfd...) })
	t.Run("nothing", func(t *testing.T) {
		t.Setenv("TMPDIR", "/no/such/folder")
		killAStandIn(t, 3, markedTree, noMemfd...)
	})
}

// In a desktop session orphans do not go to the first process.
func TestNothingOutlivesAKilledOrlaBelowASubreaper(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip("no subreaper here:", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	killAStandIn(t, 4, markedTree+unmarkedChild)
}

// A stranger that gets the id of a tool that is reaped already is never hit.
func TestStrangerOfTheSameIDLives(t *testing.T) {
	l := newLocal(t)
	p := start(t, l, shell(`setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & exec sleep 100`))
	stray := pidFrom(t, bufio.NewReader(p.Stdout))
	p.Stop()
	within(t, p.Exited(), "the exit") // the stray keeps the tree alive for the grace
	stranger := processOf(t, p.Pid())
	within(t, p.Gone(), "the end of the tree")
	eventually(t, "the stray is gone", func() bool { return !alive(stray) })
	if !alive(stranger) {
		t.Error("the stranger was killed")
	}
}

// processOf starts a process that leads a group of the given id, or skips the
// test where that cannot be had.
func processOf(t *testing.T, pid int) int {
	t.Helper()
	for range 100 {
		last := []byte(strconv.Itoa(pid - 1))
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", last, 0); err != nil {
			t.Skip("the next process's id cannot be chosen here:", err)
		}
		cmd := exec.Command("sleep", "100")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() {
			_ = cmd.Process.Kill() // it may be gone
			_ = cmd.Wait()
		}
		if cmd.Process.Pid == pid {
			t.Cleanup(end)
			return pid
		}
		end()
	}
	t.Skip("somebody else got the id each time")
	return 0
}

// SPEC F3: the first process of a container reaps what it inherits, and takes
// no tool's status away.
func TestFirstProcessReapsWhatItInherits(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, asFirst, `sh -c 'sh -c "exit 5" & echo $!'; exit 7`)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skip("no namespaces here:", err)
	}
	if string(out) != "reaped, 7\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// standInFirst runs a script as the first process of a container. It prints
// the script's exit code once the orphan is reaped whose id the script printed.
func standInFirst(script string) {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Println("mount /proc:", err)
		os.Exit(1)
	}
	l, p := standInStart(script, guardCommand())
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	orphan := "/proc/" + strings.TrimSpace(line)
	<-p.Gone()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if _, err := os.Stat(orphan); err != nil {
			l.Close() // the guard's status is nobody else's either
			fmt.Printf("reaped, %d\n", p.Exit().Code)
			os.Exit(0)
		}
	}
	stat, _ := os.ReadFile(orphan + "/stat")
	fmt.Printf("not reaped: %s", stat)
	os.Exit(1)
}

// When a tool has used up the user's processes no thread can be started either,
// and the runtime does not survive being refused one. So they are there before. A
// command that only looks needs no guard, and few threads: a Pod may have 64.
func TestThreadsAreThereBeforeTheyAreNeeded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self, asCounter, "threads").Output()
	if err != nil {
		t.Fatal(err)
	}
	var without, with int
	if _, err := fmt.Sscan(string(out), &without, &with); err != nil || without > 20 || with < 40 {
		t.Errorf("%q threads, %v; want 20 at most without a guard, and 40 with one", out, err)
	}
}

// A process takes no thread: threads count against the limit of processes, and
// the runtime does not survive being refused one.
func TestProcessesTakeNoThreads(t *testing.T) {
	l := newLocal(t)
	threads := func() int {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := threads()
	const processes = 60
	for range processes {
		p := start(t, l, shell("echo $$; read x"))
		pidFrom(t, bufio.NewReader(p.Stdout)) // it runs, so Orla waits for its end
	}
	if took := threads() - before; took > processes/3 {
		t.Errorf("%d processes took %d threads", processes, took)
	}
}
