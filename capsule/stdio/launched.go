package stdio

import (
	"context"
	"fmt"
	"syscall"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/linerpc"
)

// Launch starts a process by a Launcher. Every error is a *fault.Error.
func Launch(ctx context.Context, l launch.Launcher, spec launch.Spec) (Process, error) {
	p, err := l.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return launched{p}, nil
}

// launched is a process of a Launcher's.
type launched struct{ launch.Process }

func (p launched) Streams() (stdin, stdout, stderr linerpc.Stream) {
	return p.Process.Streams()
}

// Place says where the process is, if its Launcher does; "" if that is this machine.
func (p launched) Place() string {
	if at, ok := p.Process.(interface{ Place() string }); ok {
		return at.Place()
	}
	return ""
}

func (p launched) ExitText() string {
	switch exit := p.Exit(); {
	case exit.Err != nil:
		return "ended: " + fault.From(exit.Err).Reason
	case exit.OutOfMemory:
		return "was killed: out of its memory limit of " + launch.BytesText(p.Applied().Tree.Memory)
	case exit.Signal != 0:
		return fmt.Sprintf("was killed by %s", signalName(exit.Signal))
	case exit.Code < 0:
		return "ended, and nobody knows how"
	default:
		return fmt.Sprintf("exited with code %d", exit.Code)
	}
}

// signalName is a signal's name as people type it.
func signalName(sig syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGHUP: "SIGHUP",
		syscall.SIGILL: "SIGILL", syscall.SIGINT: "SIGINT", syscall.SIGKILL: "SIGKILL", syscall.SIGPIPE: "SIGPIPE",
		syscall.SIGQUIT: "SIGQUIT", syscall.SIGSEGV: "SIGSEGV", syscall.SIGTERM: "SIGTERM", syscall.SIGSYS: "SIGSYS",
		syscall.SIGTRAP: "SIGTRAP", syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGXCPU: "SIGXCPU",
	}
	if name, ok := names[sig]; ok {
		return name
	}
	return fmt.Sprintf("signal %d (%s)", int(sig), sig)
}
