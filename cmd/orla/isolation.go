package main

import (
	"context"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/manifest"
)

// place is where the processes of a tool live (SPEC-TOOLS 7).
type place struct {
	launcher launch.Launcher
	// elsewhere: programs are the place's own, and not this machine's.
	elsewhere bool
}

// placeOf chooses where the processes of a tool live. It never chooses less than
// the tool asks for: what cannot be had refuses each start, with what to do.
func (p *parts) placeOf(t manifest.Tool) place {
	switch mode := t.Isolation.Mode; mode {
	case "", manifest.IsolationNone:
		return place{launcher: p.launcher.Launcher()}
	default:
		return place{launcher: refusing{fault.New(fault.IsolationUnavailable, "isolation_mode %s is not served by this release", mode)}}
	}
}

// refusing is a Launcher that starts nothing.
type refusing struct{ err error }

// Start refuses.
func (r refusing) Start(context.Context, launch.Spec) (launch.Process, error) { return nil, r.err }
