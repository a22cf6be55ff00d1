//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
)

// Launcher returns a Launcher whose Start fails.
func (h *Host) Launcher(Options) launch.Launcher { return refusing{} }

// Probe says that this system has no native sandboxes.
func (h *Host) Probe(context.Context) []Reason { return []Reason{none} }

var none = Reason{
	What: "a sandbox cannot be made", Why: "native sandboxes need Linux on amd64 or arm64",
	Fix: "install podman or docker and set sandbox_backend: container",
}

type refusing struct{}

// Start fails.
func (refusing) Start(context.Context, launch.Spec) (launch.Process, error) {
	return nil, fault.New(fault.IsolationUnavailable, "no sandbox can be had here: %s", none.String())
}
