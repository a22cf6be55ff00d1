package wiring

import (
	"context"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/sandbox"
	"github.com/orla-project/orla/manifest"
)

// place is where the processes of a tool live (SPEC-TOOLS 7).
type place struct {
	launcher launch.Launcher
	// elsewhere: programs are the place's own, and not this machine's.
	elsewhere bool
}

// placeOf chooses where the processes of a tool run. It never isolates less than the tool asks for:
// if that is not possible, each start is refused, with what to do.
func (p *Parts) placeOf(t manifest.Tool) place {
	if !t.Isolation.Isolated() {
		return place{launcher: p.Launcher.Launcher()}
	}
	at := p.isolatedPlace(t)
	at.launcher = p.LastProcesses.record(t.Name, at.launcher)
	return at
}

// isolatedPlace returns the place that the terms of a tool name.
func (p *Parts) isolatedPlace(t manifest.Tool) place {
	i := t.Isolation
	if i.Terms.Refused != "" {
		return place{launcher: refusing{fault.New(fault.IsolationUnavailable, "%s; %s", i.Terms.Refused, i.Terms.Remedy)}, elsewhere: true} // nothing is looked for here
	}
	switch i.Terms.Backend {
	case manifest.BackendNative:
		limits := cgroup.Limits{Memory: i.Resources.Memory, CPUs: i.Resources.CPUs, Pids: i.Resources.Pids}
		return place{launcher: p.sandboxes.Launcher(sandbox.Options{Limits: limits, Paths: i.Terms.Paths, Hidden: i.Terms.Hidden})}
	case manifest.BackendContainer:
		return p.contained(t)
	case manifest.BackendKubernetes:
		return p.clusterPlace(t)
	}
	return place{launcher: refusing{fault.New(fault.IsolationUnavailable, "isolation_mode %s is not served by this release", i.Mode)}, elsewhere: true}
}

// refusing is a Launcher that starts nothing.
type refusing struct{ err error }

// Start refuses.
func (r refusing) Start(context.Context, launch.Spec) (launch.Process, error) { return nil, r.err }
