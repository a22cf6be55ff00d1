package launch

import (
	"context"
	"os"
	"strings"
	"syscall"
	"time"
)

// A Launcher starts processes somewhere: on this machine, in a sandbox, in a container, in a cluster
// (docs/decisions/0019). It does not know what kind of tool they belong to. Its methods may be called from any
// goroutine.
type Launcher interface {
	// Start starts a process. Every error is a *fault.Error: isolation_unavailable if the place is not
	// available, with what to do about it. ctx bounds only the start.
	Start(ctx context.Context, spec Spec) (Process, error)
}

// A Process is a process that a Launcher has started, with all processes that it starts itself. Its methods
// may be called from any goroutine.
type Process interface {
	// Pid is a process id on this machine, for the log: that of the process, or of the program that
	// represents it here; 0 for none.
	Pid() int
	// Streams are pipes, which belong to the caller, who closes them. stdin is
	// nil with Spec.Input.
	Streams() (stdin, stdout, stderr *os.File)
	// Exited is closed when the process itself has ended and Exit is known. Processes that it has
	// started may go on, and keep its streams open, until Gone is closed.
	Exited() <-chan struct{}
	// Gone is closed when nothing of it is left, or every way to end it was tried.
	Gone() <-chan struct{}
	// Exit returns how it ended. It may be called only after Exited is closed.
	Exit() Exit
	// Applied returns which limits are in effect for it.
	Applied() Applied
	// Finish ends a process that ends by itself when its stdin is closed, which the caller does right
	// after. What is left after patience is ended as by Stop. Like Stop and Kill it returns at once;
	// a further call does nothing.
	Finish(patience time.Duration)
	// Stop ends it by SIGTERM, and after the grace by SIGKILL (SPEC C4).
	Stop()
	// Kill ends it without grace.
	Kill()
}

// Exit is how a process ended.
type Exit struct {
	// Code is its exit code; 128 plus the signal's number if a signal ended it, as in shells; -1 if it
	// is not known.
	Code   int
	Signal syscall.Signal // the signal that ended it; 0 if there was none, or it is not known
	// OutOfMemory says that it was killed because of its memory limit.
	OutOfMemory bool
	// Err, a *fault.Error, says that the place in which it ran has failed, and not the process. The
	// other fields mean nothing then.
	Err error
}

var _ Process = (*LocalProcess)(nil)

// Launcher returns l as a Launcher.
func (l *Local) Launcher() Launcher { return localLauncher{l} }

type localLauncher struct{ local *Local }

func (l localLauncher) Start(ctx context.Context, spec Spec) (Process, error) {
	p, err := l.local.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Guarded returns l as a Launcher whose processes end with a killed Orla in any case: the guard is started first, if that
// was left for later (Options.GuardLater).
func (l *Local) Guarded() Launcher { return guardedLauncher{localLauncher{l}} }

type guardedLauncher struct{ localLauncher }

func (l guardedLauncher) Start(ctx context.Context, spec Spec) (Process, error) {
	l.local.watch()
	return l.localLauncher.Start(ctx, spec)
}

// Streams returns the process's pipes: Stdin, Stdout and Stderr.
func (p *LocalProcess) Streams() (stdin, stdout, stderr *os.File) {
	return p.Stdin, p.Stdout, p.Stderr
}

// Exit returns how the process ended. It may be called only after Exited is closed.
func (p *LocalProcess) Exit() Exit {
	exit := Exit{Code: p.status.ExitStatus(), OutOfMemory: p.starved}
	switch {
	case !p.known:
		exit.Code = -1
	case p.status.Signaled():
		exit.Signal = p.status.Signal()
		exit.Code = 128 + int(exit.Signal)
	}
	return exit
}

// RegistryOf returns the registry of an image, as docker config files name it.
func RegistryOf(image string) string {
	host, _, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" || host == "docker.io" || host == "index.docker.io" {
		return "https://index.docker.io/v1/"
	}
	return host
}
