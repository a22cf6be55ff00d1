package launch

import (
	"context"
	"os"
	"syscall"
	"time"
)

// A Launcher starts processes somewhere: on this machine, in a sandbox, in a
// container, in a cluster (docs/decisions/0019). What a tool is and where its
// processes live are two questions, and this is the second. Its methods may be
// called from any goroutine.
type Launcher interface {
	// Start starts a process. Every error is a *fault.Error: isolation_unavailable
	// where the place cannot be had as it has to be, with what to do about it.
	// ctx bounds only the start.
	Start(ctx context.Context, spec Spec) (Process, error)
}

// A Process is one process that a Launcher started, and all that it starts
// itself. Its methods may be called from any goroutine.
type Process interface {
	// Pid is an id on this machine that logs may name: of the process, or of
	// what stands for it here; 0 if nothing does.
	Pid() int
	// Streams are pipes, which belong to the caller, who closes them. stdin is
	// nil with Spec.Input.
	Streams() (stdin, stdout, stderr *os.File)
	// Exited is closed when the process itself has ended and Exit is known. What
	// it forked may live on, and hold its streams open, until Gone is closed.
	Exited() <-chan struct{}
	// Gone is closed when nothing is left of what the process was, or all was
	// tried that ends it.
	Gone() <-chan struct{}
	// Exit tells how it ended. It may be called only after Exited is closed.
	Exit() Exit
	// Held tells which limits hold for it.
	Held() Held
	// Finish ends a process that is told to by the end of its input. The caller
	// closes stdin right after; what is left after patience is ended as Stop does.
	// It returns at once, as Stop and Kill do; a further call does nothing.
	Finish(patience time.Duration)
	// Stop asks it to end: SIGTERM, the grace, SIGKILL (SPEC C4).
	Stop()
	// Kill ends it without grace.
	Kill()
}

// Exit is how a process ended.
type Exit struct {
	// Code is what it exited with; 128 and the signal's number when a signal
	// ended it, as shells have it; -1 when nobody knows.
	Code   int
	Signal syscall.Signal // that ended it; 0: none, or nobody knows
	// OutOfMemory: it was killed for its limit of memory.
	OutOfMemory bool
	// Err, a *fault.Error, says that the place failed in which it lived, and not
	// the process; the rest means nothing then.
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

// Streams are the process's pipes: Stdin, Stdout and Stderr.
func (p *LocalProcess) Streams() (stdin, stdout, stderr *os.File) {
	return p.Stdin, p.Stdout, p.Stderr
}

// Exit tells how the process ended. It may be called only after Exited is closed.
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
