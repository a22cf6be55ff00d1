package capsule

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/cgroup"
	"github.com/orla-project/orla/internal/environ"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/linerpc"
	"github.com/orla-project/orla/internal/secret"
	"github.com/orla-project/orla/internal/turns"
)

// Process is one life of what a capsule speaks with, as this package sees it:
// what a launch.Process does, or a session with a server that is far away
// (docs/decisions/0017). What is written to stdin and read from stdout are lines;
// a line of stderr is for the log.
type Process interface {
	// Pid is 0 for what is no process of this machine.
	Pid() int
	Streams() (stdin, stdout, stderr linerpc.Stream)
	// Exited is closed when the process itself is gone, Gone when its tree is.
	// A process that is gone has closed its ends of the streams.
	Exited() <-chan struct{}
	Gone() <-chan struct{}
	// Held tells which of the limits that it was started with hold.
	Held() launch.Held
	// ExitText tells how it ended, as it goes on after "it". It may be called
	// only after Exited.
	ExitText() string
	// Finish gives the tree eof to end after its stdin was closed, then
	// SIGTERM, the grace and SIGKILL. It returns at once.
	Finish(eof time.Duration)
	// Kill ends the tree without grace. It returns at once.
	Kill()
}

// An Expirer is a Process that may also end in order, without having failed: a
// session that its server has ended. The next one follows at once.
type Expirer interface {
	// Expired reports whether it ended so. It may be called only after Exited.
	Expired() bool
}

// A Sharer is a Process that bounds how many requests it works on at once. It shares
// the places by caller first, and by session second (SPEC N2).
type Sharer interface {
	// Share is called once, before anything is written. whose returns whose share the
	// request that has an id takes, and whether anybody waits for its answer.
	Share(whose func(id int64) (line turns.Line, waits bool))
}

// JSON-RPC codes of errors with which a Process answers in the place of a server
// that is far away.
const (
	// CodeTransport: something is wrong between here and there. The error's data
	// has a tool_code, and logged where the log is to have another reason.
	CodeTransport = -32097
	// CodeNotServed: the request did not reach the server, and the Process is
	// about to end for that. It is made of the next Process.
	CodeNotServed = -32098
)

// launched starts processes by a Launcher, as Options.Start.
func launched(l launch.Launcher) func(context.Context, launch.Spec) (Process, error) {
	return func(ctx context.Context, spec launch.Spec) (Process, error) {
		p, err := l.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		return launchedProcess{p}, nil
	}
}

type launchedProcess struct{ launch.Process }

func (p launchedProcess) Streams() (stdin, stdout, stderr linerpc.Stream) {
	return p.Process.Streams()
}

func (p launchedProcess) ExitText() string {
	switch exit := p.Exit(); {
	case exit.Err != nil:
		return "ended: " + fault.From(exit.Err).Reason
	case exit.OutOfMemory:
		return "was killed: out of its memory limit of " + launch.BytesText(p.Held().Tree.Memory)
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

// spec is how the next process is started.
func (c *Capsule) spec() (launch.Spec, error) {
	t := c.tool
	variables, secrets, err := c.withSecrets()
	if err != nil {
		return launch.Spec{}, err
	}
	spec := launch.Spec{
		Path:    t.Path,
		Argv:    slices.Concat([]string{t.Path}, t.Run.Args),
		Env:     variables,
		Secrets: secrets,
		Dir:     t.WorkDir(),
		Grace:   t.Runtime.StopGrace,
		Whole:   true,
		Cell:    t.Name,
		Limits: cgroup.Limits{
			Memory: t.Isolation.Resources.Memory, CPUs: t.Isolation.Resources.CPUs, Pids: t.Isolation.Resources.Pids,
		},
	}
	if t.Isolation.Isolated() {
		spec.Expose = t.Exposed()
	}
	if t.Isolation.Isolated() && !c.opts.Elsewhere {
		if spec.Path = environ.Find(t.Path, c.environ); spec.Path == "" {
			return launch.Spec{}, fault.New(fault.UnsupportedTool, "%s: there is no %s where it is to run", t.Name, t.Path)
		}
	}
	if t.Interpreter.Name == "" {
		return spec, nil
	}
	spec.Path = t.Interpreter.Program()
	if !c.opts.Elsewhere {
		if spec.Path, err = environ.Interpreter(t, c.environ); err != nil {
			return launch.Spec{}, fault.Wrap(fault.UnsupportedTool, err, "%s: %v", t.Name, err)
		}
	}
	spec.Argv = slices.Concat([]string{spec.Path}, t.Interpreter.Args, []string{t.Path}, t.Run.Args)
	return spec, nil
}

// withSecrets returns the environment of the next process, and what of it is
// secret. Secrets are resolved at each start and kept by nobody, so that the next
// process has a rotated one.
func (c *Capsule) withSecrets() (variables, secrets []string, err error) {
	variables = slices.Clip(c.environ)
	if len(c.tool.Run.SecretEnv) == 0 {
		return variables, nil, nil
	}
	var values []secret.Value
	for _, wanted := range c.tool.Run.SecretEnv {
		value, err := c.opts.Secrets(wanted.Secret)
		if err != nil {
			return nil, nil, fault.New(fault.StartFailed, "%s: the variable %s: %s", c.tool.Name, wanted.Name, fault.From(err).Reason)
		}
		if strings.ContainsRune(value.Reveal(), 0) {
			return nil, nil, fault.New(fault.StartFailed, "%s: the variable %s: secret %q has a NUL in it", c.tool.Name, wanted.Name, wanted.Secret)
		}
		prefix := wanted.Name + "="
		variables = slices.DeleteFunc(slices.Clone(variables), func(kv string) bool { return strings.HasPrefix(kv, prefix) })
		secrets = append(secrets, prefix+value.Reveal())
		values = append(values, value)
	}
	c.redactor.Store(secret.NewRedactor(values...))
	return variables, secrets, nil
}

// clean takes the secrets that the last process was given out of a line that it
// wrote, so that they are in no answer, no error and no log (SPEC-TOOLS 5.3).
func (c *Capsule) clean(line []byte) []byte { return c.redactor.Load().RedactBytes(line) }

// closeStreams closes Orla's ends of a process that is gone.
func closeStreams(streams ...linerpc.Stream) {
	for _, s := range streams {
		if f, ok := s.(*os.File); ok && f == nil {
			continue
		}
		_ = s.Close() // nothing more can be read or written
	}
}
