package wiring

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"

	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/manifest"
)

// launcherOf chooses what starts the processes of a tool, and reports whether they have other programs than
// those of this machine. It never isolates less than the tool asks for: if that is not possible, each start is
// refused, with what to do.
func (p *Parts) launcherOf(t manifest.Tool) (launcher launch.Launcher, elsewhere bool) {
	launcher = p.Launcher.Launcher()
	if t.Isolation.Isolated() {
		launcher, elsewhere = p.isolated(t)
		launcher = p.LastProcesses.record(t.Name, launcher)
	}
	if len(t.Requires) > 0 && !elsewhere {
		launcher = &requiring{Launcher: launcher, tool: t, environ: p.Packages.environ}
	}
	return launcher, elsewhere
}

// requiring is a Launcher that starts nothing until the programs are there that the tool requires (SPEC R1).
type requiring struct {
	launch.Launcher
	tool    manifest.Tool
	environ []string    // as environ.Clean returns it
	there   atomic.Bool // they have been there
}

// Start fails with the program that is missing, and how to install it.
func (r *requiring) Start(ctx context.Context, spec launch.Spec) (launch.Process, error) {
	if !r.there.Load() {
		own := environ.Of(r.tool, r.environ)
		find := func(program string) string { return environ.Find(program, own) }
		if lacking, is := doctor.Absent(r.tool.Requires, find, r.tool.Name); is {
			how := "install it"
			if lacking.Fix != "" {
				how = "to install it: " + lacking.Fix
			}
			return nil, fault.New(fault.StartFailed, "%s; %s", lacking.Text, how)
		}
		r.there.Store(true)
	}
	return r.Launcher.Start(ctx, spec)
}

// isolated is launcherOf for a tool that is isolated by its terms.
func (p *Parts) isolated(t manifest.Tool) (launcher launch.Launcher, elsewhere bool) {
	i := t.Isolation
	if i.Terms.Refused != "" {
		return refusing{fault.New(fault.IsolationUnavailable, "%s; %s", i.Terms.Refused, i.Terms.Remedy)}, true // nothing is looked for here
	}
	switch i.Terms.Backend {
	case manifest.BackendNative:
		return p.sandboxes.Launcher(sandbox.Options{
			Limits: cgroup.Limits(i.Resources), Paths: i.Terms.Paths, Hidden: slices.Concat(i.Terms.Hidden, i.Grants.Hides),
			Reads: i.Grants.Reads, Writes: i.Grants.Writes, Network: i.Grants.Network,
		}), false
	case manifest.BackendContainer:
		return p.contained(t), true
	case manifest.BackendKubernetes:
		return p.clustered(t), true
	}
	return refusing{fault.New(fault.IsolationUnavailable, "isolation_mode %s is not served by this release", i.Mode)}, true
}

// ofInstallers are the limits of an installer that is confined.
var ofInstallers = cgroup.Limits{Memory: 2 << 30, CPUs: 2, Pids: 512}

// confine returns what starts an installer of the dependencies of an installed package (SPEC R6).
func (p *Parts) confine(writes []string) launch.Launcher { return confine(p.sandboxes, writes) }

func confine(host *sandbox.Host, writes []string) launch.Launcher {
	return host.Launcher(sandbox.Options{Limits: ofInstallers, Writes: writes, Network: true})
}

// OpenLocker returns what writes the locks of packages from elsewhere, for a process that does not serve. end waits for what is
// left of its installers.
func OpenLocker() (locker deps.Locker, end func(), err error) {
	log := slog.New(slog.DiscardHandler)
	local, err := launch.NewLocal(launch.Options{Log: log})
	if err != nil {
		return deps.Locker{}, nil, err
	}
	host := sandbox.NewHost(sandbox.HostOptions{Local: local, Log: log})
	locker.Python = environ.Find("python3", nil) // that of installed packages
	locker.Options = deps.Options{
		Launcher: local.Launcher(), Environ: environ.Clean(os.Environ()), Log: log, ConfinedUser: sandbox.ID,
		Confine: func(writes []string) launch.Launcher { return confine(host, writes) },
	}
	return locker, func() { local.Close(); host.Close() }, nil
}

// refusing is a Launcher that starts nothing.
type refusing struct{ err error }

// Start refuses.
func (r refusing) Start(context.Context, launch.Spec) (launch.Process, error) { return nil, r.err }
