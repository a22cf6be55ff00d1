// Package container starts processes in containers of their own, by the command
// line of podman or docker (SPEC-TOOLS 7.2, 7.3, 7.6).
//
//	Start ─► is there an engine? ─► is its image here? ─► does it enforce what it is told? ─► podman run …
//	         each of these is asked once in a while
//
// Which flags make a container what is in flags.go, and nothing else says so. That
// they hold is not believed: before a tool's first process, a container with the
// same flags tells what the kernel made of them (verify.go).
//
// Its invariant: a container that was asked for is removed by its name before Gone
// is closed, whatever became of the command line that asked. What is left
// when Orla itself is killed is swept by its labels (sweep.go).
package container

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/service/secret"
)

// DefaultUser is whom processes run as (SPEC-TOOLS 7.2).
const DefaultUser = "65532:65532"

// Options is what a Launcher needs of one tool.
type Options struct {
	// Engine runs the containers. Required.
	Engine *Engine
	// Tool is the tool's name, for labels and for what is said.
	Tool string
	// Image is what containers are made of, by its name for the engine. Required.
	Image string
	// PullSecret returns what the image is pulled with where it is not there:
	// user:password, or the JSON of a docker config file. If nil, the engine's own.
	PullSecret func() (secret.Value, error)
	// Network is the engine's name of a network. If "", there is none.
	Network string
	// Shared allows a Network that is this machine's or another container's,
	// because the operator lists it.
	Shared bool
	// User is UID:GID. If "", DefaultUser.
	User string
	// Runtime is the OCI runtime. If "", the engine's.
	Runtime string
	// Limits bound each container. A zero limit is none.
	Limits cgroup.Limits
	// Sandboxed makes the container's files read-only, all but 16 MiB of memory in
	// /tmp (SPEC-TOOLS 7.2). If false, what it writes is gone with it.
	Sandboxed bool
}

// Launcher starts the processes of one tool. Its method may be called from any
// goroutine.
type Launcher struct{ opts Options }

var _ launch.Launcher = (*Launcher)(nil)

// New returns a Launcher. It asks nothing of the engine yet.
func New(opts Options) *Launcher {
	opts.User = cmp.Or(opts.User, DefaultUser)
	opts.Network = cmp.Or(opts.Network, noNetwork)
	return &Launcher{opts: opts}
}

// Start starts a container. Spec.Path is a program of the image, or of Expose; a
// name without a slash is looked for in the image's PATH. Argv[0] is Path,
// whatever Spec says. ctx bounds how long the caller waits; an image goes on
// being pulled.
func (l *Launcher) Start(ctx context.Context, spec launch.Spec) (launch.Process, error) {
	if err := l.opts.check(); err != nil {
		return nil, err
	}
	e := l.opts.Engine
	if err := e.enter(); err != nil {
		return nil, err
	}
	started := false
	defer func() {
		if !started {
			e.work.Done()
		}
	}()
	made, err := e.found(ctx)
	if err != nil {
		return nil, err
	}
	img, err := e.image(ctx, made, l.opts)
	if err != nil {
		return nil, err
	}
	p := plan{opts: l.opts, made: made, image: img, spec: spec, name: e.newName()}
	applied, err := e.verified(ctx, p)
	if err != nil {
		return nil, err
	}
	process, err := e.start(ctx, p, applied)
	if err != nil {
		return nil, err
	}
	started = true
	go process.attend(context.WithoutCancel(ctx)) // leaves e.work
	return process, nil
}

// newName returns a name that no container has.
func (e *Engine) newName() string {
	return "orla-" + e.instance + "-" + strings.ToLower(rand.Text()[:13])
}

// start runs the engine's command line for a container.
func (e *Engine) start(ctx context.Context, p plan, applied cgroup.Limits) (*process, error) {
	vars, err := p.variables()
	if err != nil {
		return nil, err
	}
	args, err := p.arguments(vars.flags)
	if err != nil {
		return nil, err
	}
	process := newProcess(e, p, applied)
	if process.stderr, err = newRelay(); err != nil {
		return nil, fault.Wrap(fault.StartFailed, err, "%s: no pipe can be had for its stderr", p.opts.Tool)
	}
	file, err := vars.open()
	if err != nil {
		process.stderr.close()
		return nil, fault.Wrap(fault.StartFailed, err, "%s: no pipe can be had for its environment", p.opts.Tool)
	}
	spec := e.spec(args)
	spec.Env = vars.over(spec.Env)
	spec.Input, spec.ID, spec.Grace = p.spec.Input, p.spec.ID, p.spec.Grace
	if file != nil {
		defer func() { _ = file.Close() }() // the process has its own; nothing is written to it
		spec.Files = append(spec.Files, file)
	}
	if process.cli, err = e.local(ctx, spec); err != nil {
		process.stderr.close()
		return nil, err
	}
	process.stderr.start(process.cli.Stderr)
	return process, nil
}
