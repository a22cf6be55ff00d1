// Package container starts processes in containers of their own, by the command line of podman or
// docker (SPEC-TOOLS 7.2, 7.3, 7.6).
//
//	Start ─► is there an engine? ─► is its image here? ─► does it enforce the limits? ─► podman run …
//	         the answers are kept for some time
//
// Only flags.go says which flags make the container. Orla does not trust that the flags take effect:
// before a tool's first process, a container with the same flags reports what the kernel applies
// (verify.go).
//
// Its invariant: every container that was asked for is removed by its name before Gone is closed,
// even if the command line that started it has failed. Containers that a killed Orla leaves are
// swept by their labels (sweep.go).
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

// DefaultUser is the UID:GID of processes (SPEC-TOOLS 7.2).
const DefaultUser = "65532:65532"

// Options configures the Launcher of one tool.
type Options struct {
	// Engine runs the containers. Required.
	Engine *Engine
	// Tool is the tool's name, for labels and messages.
	Tool string
	// Image is the engine's name of the image. Required.
	Image string
	// PullSecret returns the credentials to pull a missing image with: user:password, or the JSON of a
	// docker config file. If nil, the engine uses its own.
	PullSecret func() (secret.Value, error)
	// Network is the engine's name of a network. If "", containers have no network.
	Network string
	// Shared allows a Network that belongs to this machine or to another container, because the operator
	// has listed it.
	Shared bool
	// User is UID:GID. If "", DefaultUser.
	User string
	// Runtime is the OCI runtime. If "", the engine's default.
	Runtime string
	// Limits are the limits of each container. Zero means no limit.
	Limits cgroup.Limits
	// Sandboxed makes the container's files read-only, except 16 MiB of memory in /tmp (SPEC-TOOLS 7.2).
	// If false, the process may write to the container, which is removed at the end.
	Sandboxed bool
}

// Launcher starts the processes of one tool. Its methods may be called from any goroutine.
type Launcher struct{ opts Options }

var _ launch.Launcher = (*Launcher)(nil)

// New returns a Launcher. It does not run the engine.
func New(opts Options) *Launcher {
	opts.User = cmp.Or(opts.User, DefaultUser)
	opts.Network = cmp.Or(opts.Network, noNetwork)
	return &Launcher{opts: opts}
}

// Start starts a container. Spec.Path is a program of the image or of Expose; a name without a slash
// is looked for in the image's PATH. Argv[0] is always Path. ctx bounds how long the caller waits;
// the pull of an image goes on in the background.
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
	go process.attend(context.WithoutCancel(ctx)) // attend does e.work.Done
	return process, nil
}

// ourName matches the names that newName returns, and not those of others, such as orla-db-1 of a Compose project named orla.
var ourName = form(`^orla-[a-z2-7]{10}-[a-z2-7]{13}$`)

// newName returns a name that no other container has.
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
		defer func() { _ = file.Close() }() // the process has its own copy; nothing is written here
		spec.Files = append(spec.Files, file)
	}
	if process.cli, err = e.local(ctx, spec); err != nil {
		process.stderr.close()
		return nil, err
	}
	process.stderr.start(process.cli.Stderr)
	return process, nil
}
