package wiring

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/orla-project/orla/internal/cgroup"
	"github.com/orla-project/orla/internal/config"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/manifest"
)

// remembering is a Launcher that remembers what it started last, so that one
// can ask afterwards what that was really held by.
type remembering struct {
	launch.Launcher
	last atomic.Pointer[launch.Process] // nil before the first
}

// Start starts a process, and remembers it.
func (r *remembering) Start(ctx context.Context, spec launch.Spec) (launch.Process, error) {
	p, err := r.Launcher.Start(ctx, spec)
	if err == nil {
		r.last.Store(&p)
	}
	return p, err
}

// Memories are the isolated tools' launchers, by the tools' names.
type Memories struct {
	mu     sync.Mutex // guards byTool
	byTool map[string]*remembering
}

// remember makes the launcher of a tool one that remembers.
func (m *Memories) remember(tool string, l launch.Launcher) launch.Launcher {
	r := &remembering{Launcher: l}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byTool == nil {
		m.byTool = map[string]*remembering{}
	}
	m.byTool[tool] = r
	return r
}

// notCalled stands for the limits of a tool that has not had a process yet.
const notCalled = "not yet called"

// Held says which limits the last process of an isolated tool was held by; ""
// of a tool that is not isolated, or a capsule that has not been started. A
// module has its limits by itself.
func (m *Memories) Held(t manifest.Tool) string {
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
	text, _ := (*p).Held().Text(cgroup.Limits(t.Isolation.Resources))
	return text
}
