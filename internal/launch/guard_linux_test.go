package launch_test

import (
	"bufio"
	"crypto/rand"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/testing/needs"
)

// A guard that does not end keeps Orla from ending for a moment only.
func TestC4AGuardThatDoesNotEndIsKilled(t *testing.T) {
	needs.Time(t, "waits for seconds")
	closes := func(t *testing.T, l *launch.Local) {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			l.Close()
		}()
		within(t, closed, "the end of Orla")
	}
	t.Run("stopped", func(t *testing.T) {
		l, err := launch.NewLocal(launch.Options{Guard: guardCommand(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		guard := guardPid(t, os.Getpid(), 0)
		if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(guard, syscall.SIGCONT) }) // it is gone, unless something is wrong
		closes(t, l)
	})
	t.Run("deaf", func(t *testing.T) {
		l, err := launch.NewLocal(launch.Options{Guard: []string{guardCommand()[0], asDeaf}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		closes(t, l)
	})
}

// A guard that was stopped continues when Orla is killed.
func TestC4AStoppedGuardDoesItsWork(t *testing.T) {
	needCommands(t, "setsid")
	killAfter(t, exec.Command(guardCommand()[0], asOrla, markedTree+"wait"), 3, func(orla int) {
		if err := syscall.Kill(guardPid(t, orla, 0), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	})
}

// The guard is started again also after the program's file was removed.
func TestC4AGuardComesBackWithoutTheFile(t *testing.T) {
	needCommands(t, "setsid")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("cp", self, program).CombinedOutput(); err != nil { // written by this process it could be busy
		t.Fatal(err, string(out))
	}
	killAfter(t, exec.Command(program, asOrla, markedTree+"wait"), 3, func(orla int) {
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		first := guardPid(t, orla, 0)
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		guardPid(t, orla, first)
	})
}

// What a killed Orla had just forked is in Orla's own session still, and bears its tag.
// The guard ends it, and nothing else that is in that session.
func TestAGuardSparesOrlasSession(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `sleep 300 & echo $!; sleep 300 & echo $!; exec "$0" "$@"`, self, asOrla, "echo $$; exec sleep 300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	forked, neighbour, tool := pidFrom(t, r), pidFrom(t, r), pidFrom(t, r)
	defer func() { _ = syscall.Kill(neighbour, syscall.SIGKILL) }() // it is gone if the test has failed
	var tag unix.Rlimit
	if err := unix.Prlimit(tool, unix.RLIMIT_LOCKS, nil, &tag); err != nil || tag.Cur == unix.RLIM_INFINITY {
		t.Fatalf("the tool's tag is %d, %v", tag.Cur, err)
	}
	if err := unix.Prlimit(forked, unix.RLIMIT_LOCKS, &tag, nil); err != nil {
		t.Fatal(err)
	}
	guard := guardPid(t, cmd.Process.Pid, 0)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for name, pid := range map[string]int{"the fork": forked, "the tool": tool, "the guard": guard} {
		eventually(t, name+" is gone", func() bool { return !alive(pid) })
	}
	if !alive(neighbour) {
		t.Error("what is in Orla's session was killed")
	}
}

// What an Orla has started that a tool runs without its environment is the outer one's too.
func TestNothingOutlivesAKilledOrlaOfAnOrlaWithoutEnvironment(t *testing.T) {
	needCommands(t, "setsid")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SELF", self)
	t.Setenv("ORPHAN", `sh -c "env -i setsid sh -c 'trap \"\" TERM HUP PIPE; echo \$\$; while :; do sleep 1; done' &"; echo $$; sleep 100`)
	killAStandIn(t, 3, `echo $$; env -i PATH="$PATH" "$SELF" `+asOrla+` "$ORPHAN" & `)
}

// A process that forks and ends at once, again and again, is gone each time before a
// list of all processes is complete. The guard ends it all the same.
func TestC4AGuardEndsAChainOfForks(t *testing.T) {
	needCommands(t, "perl")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	chain := `exec perl -MPOSIX -e '$| = 1; $end = time + 9; print "$$\n"; fork and sleep 600; while (time < $end) { fork and POSIX::_exit(0); setsid(); select undef, undef, undef, 0.0003 } print "lived\n"' > ` + fifo
	cmd := exec.Command(guardCommand()[0], asOrla, chain)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // nothing was written to it
	r := bufio.NewReader(out)
	pidFrom(t, r)
	guardPid(t, cmd.Process.Pid, 0)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()             // it was killed
	rest, err := io.ReadAll(r) // it ends with the last process of the chain
	if err != nil || len(rest) != 0 {
		t.Errorf("the chain said %q, %v", rest, err)
	}
}

// A killed Orla takes a moment to go. If it was killed during a fork, it bears the tag of
// its own tools meanwhile, and the guard is its child still. The guard then ends all
// others, and not itself before them.
func TestC4AGuardSparesItselfWhileOrlaGoes(t *testing.T) {
	instance := rand.Text()
	cmd := exec.Command(guardCommand()[0], asGoing, instance)
	cmd.Env = append(os.Environ(), "ORLA_INSTANCE="+instance+".tool")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it is gone, unless something is wrong
		_ = cmd.Wait()         // it was killed
	})
	r := bufio.NewReader(out)
	for range going {
		pid := pidFrom(t, r)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it is gone, unless something is wrong
		eventually(t, "the process is gone", func() bool { return !alive(pid) })
	}
}
