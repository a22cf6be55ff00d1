package launch_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/testing/needs"
)

// standInCrowd runs capsules, each with a tree, passes on the ids that they
// print, and waits to be killed.
func standInCrowd(capsules string) {
	count, err := strconv.Atoi(capsules)
	if err != nil {
		panic(err)
	}
	l, err := launch.NewLocal(launch.Options{Guard: guardCommand(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	lines := make(chan string)
	for range count {
		p, err := l.Start(context.Background(), capsule(markedTree+"wait", time.Hour))
		if err != nil {
			panic(err)
		}
		go func() {
			for r := bufio.NewReader(p.Stdout); ; {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				lines <- line
			}
		}()
	}
	for line := range lines {
		fmt.Print(line)
	}
}

// SPEC D3: nothing of a hundred capsules outlives an Orla that is killed.
func TestNoCapsuleOutlivesAKilledOrla(t *testing.T) {
	needCommands(t, "setsid")
	const capsules = 100
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, asCrowd, strconv.Itoa(capsules))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	pids := make([]int, 3*capsules) // see markedTree
	for i := range pids {
		pids[i] = pidFrom(t, r)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
	t.Logf("%d processes were gone after %s", len(pids), time.Since(began))
	_ = cmd.Wait() // it was killed
}

// SPEC D2: while Orla has no descriptor left to look with, it does not take a
// tree for gone.
func TestGoneWaitsForADescriptor(t *testing.T) {
	needCommands(t, "setsid")
	p := start(t, newLocal(t), capsule("setsid "+deaf+" & read x", time.Hour))
	stray := pidFrom(t, bufio.NewReader(p.Stdout))
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_ = p.Stdin.Close()
	<-p.Exited()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	within(t, p.Gone(), "the end of the tree")
	wantDead(t, stray)
}

// What SIGKILL does not end is given up: nobody waits for it for ever. Here the
// kernel refuses to send any signal.
func TestWhatDoesNotDieIsGivenUp(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"leader": `echo $$; read x; exec sleep 100`,
		"member": `sleep 100 & echo $!; read x`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it takes its time
			args := append(without(unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL), asFinisher, script)
			out, err := exec.Command(self, args...).Output()
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(string(out[:max(0, len(out)-1)]))
			if err != nil {
				t.Fatalf("it printed %q", out)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL) // the leader died with its Orla
		})
	}
}

// Nor does who runs it, on a thread of its own or not, and what was printed is kept.
func TestC4RunGivesUpWhatDoesNotDie(t *testing.T) {
	needs.Time(t, "waits for seconds")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel() // it takes its time
	const script = `echo $$; exec sleep 60`
	out, err := exec.Command(self, append(without(unix.SYS_KILL, unix.SYS_PIDFD_SEND_SIGNAL), asRunner, script)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(out))
	if len(pids) != 2 {
		t.Errorf("it printed %q; want two ids, long before their processes end", out)
	}
	for _, text := range pids {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it died with its Orla
		}
	}
}

// elsewhere starts processes as a Launcher does that nobody knows.
type elsewhere struct{ launch.Launcher }

// standInRun runs a script by each kind of launcher, and prints what it printed
// when it is given up.
func standInRun(script string) {
	l, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	var both sync.WaitGroup
	for _, by := range []launch.Launcher{l.Launcher(), elsewhere{l.Launcher()}} {
		both.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			spec := shell(script)
			spec.Input, spec.Grace = []byte{}, time.Millisecond
			var printed []byte
			ran, err := launch.Run(ctx, by, spec, func(p []byte) { printed = append(printed, p...); cancel() }, func([]byte) {})
			if err == nil && ran.Stopped && ran.Code == -1 {
				fmt.Print(string(printed))
			}
		})
	}
	both.Wait()
	l.Close()
	os.Exit(0)
}

// standInFinish finishes a script after its first line, which it prints when
// the launcher has let go of its tree.
func standInFinish(script string) {
	l, p := standInStart(script, nil)
	line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
	p.Finish(time.Millisecond)
	_ = p.Stdin.Close()
	<-p.Gone()
	l.Close()
	fmt.Print(line)
	os.Exit(0)
}

// SPEC F3: however many crashes leave nothing behind in Orla.
func TestCrashesLeakNothing(t *testing.T) {
	needs.Time(t, "starts hundreds of processes")
	l := newLocal(t)
	crash := func(i int) {
		script := "exit 3"
		if i%20 == 0 { // rarely: whoever inherits the dead may leave them as zombies for a while
			script = "setsid sleep 100 & sleep 100 & exit 3"
		}
		p, err := l.Start(t.Context(), capsule(script, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		within(t, p.Gone(), "the end of the tree")
		for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
			_ = f.Close()
		}
		p.Stop()
	}
	held := func() (goroutines, files, memory int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return runtime.NumGoroutine(), len(entries), int(stats.HeapAlloc)
	}
	for i := range 40 {
		crash(i)
	}
	goroutines, files, memory := held()
	crashes := needs.Rounds(100, 250)
	for i := range crashes {
		crash(i)
	}
	eventually(t, "goroutines, files and memory are as before", func() bool {
		g, f, m := held()
		return g <= goroutines && f <= files && m <= memory+crashes<<10
	})
}
