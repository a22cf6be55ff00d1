package wiring

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/manifest"
)

// recordingLauncher is a Launcher that keeps the process it started last, so that its
// real limits can be read afterwards.
type recordingLauncher struct {
	launch.Launcher
	last atomic.Pointer[launch.Process] // nil before the first
}

// Start starts a process, and keeps it.
func (r *recordingLauncher) Start(ctx context.Context, spec launch.Spec) (launch.Process, error) {
	p, err := r.Launcher.Start(ctx, spec)
	if err == nil {
		r.last.Store(&p)
	}
	return p, err
}

// LastProcesses has the last process of each isolated tool.
type LastProcesses struct {
	mu     sync.Mutex // guards byTool
	byTool map[string]*recordingLauncher
}

// record returns a launcher that does what l does and keeps the tool's last process.
func (m *LastProcesses) record(tool string, l launch.Launcher) launch.Launcher {
	r := &recordingLauncher{Launcher: l}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byTool == nil {
		m.byTool = map[string]*recordingLauncher{}
	}
	m.byTool[tool] = r
	return r
}

// notCalled is the text for the limits of a tool that has had no process yet.
const notCalled = "not yet called"

// Limits says which limits were in effect for the last process of an isolated tool; "" for a tool
// that is not isolated, and for a capsule that was not started. Modules have their own limits.
func (m *LastProcesses) Limits(t manifest.Tool) string {
	switch {
	case t.Isolation.Mode == manifest.IsolationWASM && t.Resource != nil && t.Resource.WASM != nil:
		module := t.Resource.WASM
		return "memory " + launch.BytesText(module.MaxMemory) + ", fuel " + config.NumberText(float64(module.Fuel))
	case !t.Isolation.Isolated():
		return ""
	case t.Isolation.Terms.Refused != "":
		return "refused: " + t.Isolation.Terms.Refused + "; " + t.Isolation.Terms.Remedy
	}
	m.mu.Lock()
	r := m.byTool[t.Name]
	m.mu.Unlock()
	var p *launch.Process
	if r != nil {
		p = r.last.Load()
	}
	switch {
	case p == nil && t.Kind == manifest.Capsule:
		return ""
	case p == nil:
		return notCalled
	}
	text, _ := (*p).Applied().Text(cgroup.Limits(t.Isolation.Resources))
	return text
}
