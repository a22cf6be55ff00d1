package launch_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/launch"
)

// A guard that does not end keeps Orla from ending for a moment only.
func TestC17AGuardThatDoesNotEndIsKilled(t *testing.T) {
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
func TestC17AStoppedGuardDoesItsWork(t *testing.T) {
	needCommands(t, "setsid")
	killAfter(t, exec.Command(guardCommand()[0], asOrla, markedTree+"wait"), 3, func(orla int) {
		if err := syscall.Kill(guardPid(t, orla, 0), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	})
}

// The guard is started again also after the program's file was removed.
func TestC17AGuardComesBackWithoutTheFile(t *testing.T) {
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
