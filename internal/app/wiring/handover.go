package wiring

import (
	"encoding/json"
	"log/slog"
	"sync"

	"github.com/orla-project/orla/capsule/handover"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/manifest"
)

// Given is what the parts of one program give to those of the next one in the same process
// (docs/decisions/0051).
type Given struct {
	Launch   *launch.State              `json:"launch,omitempty"`
	Cgroup   *cgroup.Kept               `json:"cgroup,omitempty"`
	Capsules map[string]json.RawMessage `json:"capsules,omitempty"` // handover.States, by the names of manifests
	Restarts map[string]int             `json:"restarts,omitempty"` // of other capsules, by the names of manifests
}

// Leave is called in place of Close when another program is to be executed in this process. capsules are what
// the supervisor has given.
func (p *Parts) Leave(capsules map[string]json.RawMessage) *Given {
	g := &Given{Capsules: capsules, Restarts: map[string]int{}}
	for name, life := range p.Supervisor.Lives() {
		if _, given := capsules[name]; !given && life.Restarts > 0 {
			g.Restarts[name] = life.Restarts
		}
	}
	p.close(func() { g.Launch, g.Cgroup = p.Launcher.Leave(), p.cgroup.Kept() })
	return g
}

// adopted are the processes of capsules that the program before has given.
type adopted struct {
	mu       sync.Mutex // guards the fields that follow
	byName   map[string]*handover.Taken
	restarts map[string]int // of capsules without a process
	ending   sync.WaitGroup
}

// adopt takes the processes over.
func (p *Parts) adopt(g *Given) {
	if g == nil {
		return
	}
	p.adopted.byName, p.adopted.restarts = map[string]*handover.Taken{}, g.Restarts
	for name, raw := range g.Capsules {
		t := &handover.Taken{}
		err := json.Unmarshal(raw, &t.State)
		if err == nil {
			t.Process, err = p.Launcher.Adopt(t.State.Connection.Process)
		}
		if err != nil {
			p.log.Error("the process of a capsule cannot be taken over", "tool", name, "err", err)
			launch.KillLeft(t.State.Connection.Process)
			continue
		}
		p.adopted.byName[name] = t
	}
}

// of returns what a capsule may go on with: a process, or the count of its processes; nil for neither.
func (a *adopted) of(t manifest.Tool) *handover.Taken {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.restarts[t.Name]; n > 0 {
		delete(a.restarts, t.Name)
		return handover.Counted(n)
	}
	if t.Isolation.Isolated() || t.Runtime.Remote != nil {
		return nil
	}
	taken := a.byName[t.Name]
	delete(a.byName, t.Name)
	return taken
}

// EndRest ends the processes that no capsule goes on with. It returns at once.
func (p *Parts) EndRest() {
	p.adopted.mu.Lock()
	defer p.adopted.mu.Unlock()
	for name, t := range p.adopted.byName {
		p.log.Info("the process of the program before is ended: its tool is not served any more", "tool", name, "pid", t.Process.Pid())
		p.adopted.ending.Go(t.End)
	}
	clear(p.adopted.byName)
}

// openCgroupAfter takes over the cgroup that was delegated to Orla, with what the program before has left in it.
func openCgroupAfter(g *Given, log *slog.Logger) *cgroup.Root {
	if g == nil || g.Cgroup == nil {
		return openCgroup(log)
	}
	root, reason := cgroup.Reopen(*g.Cgroup, log)
	if root == nil {
		log.Warn("the cgroup of the program before cannot be used", "reason", reason)
	}
	return root
}
