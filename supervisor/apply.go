package supervisor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// Diff says what an Apply did, by the names of manifests, each list sorted.
type Diff struct {
	Added, Removed, Changed []string
	Kept                    int
	// Failed holds why a manifest is not served, by its name.
	Failed map[string]error
}

// Empty reports whether nothing changed and nothing failed.
func (d Diff) Empty() bool {
	return len(d.Added)+len(d.Removed)+len(d.Changed)+len(d.Failed) == 0
}

// Apply replaces the tools by new ones. A tool that is unchanged keeps its provider, its process and its
// calls (SPEC H2). A tool that is missing is stopped when its calls have ended, or after a time limit.
// A tool that cannot be built is in Diff.Failed and does not affect the others.
func (s *Supervisor) Apply(tools []manifest.Tool) Diff { return s.apply(tools, patience) }

// ApplyUnserved is Apply for a Supervisor that does not Serve, which compiles nothing later: it takes as long as that needs.
func (s *Supervisor) ApplyUnserved(tools []manifest.Tool) Diff {
	return s.apply(tools, math.MaxInt64)
}

// apply is Apply. rest is how long it may compile what new peers are known to offer.
func (s *Supervisor) apply(tools []manifest.Tool, rest time.Duration) Diff {
	s.applying.Lock()
	defer s.applying.Unlock()

	diff := Diff{Failed: map[string]error{}}
	made := map[string]*living{}
	for i := range tools {
		tool := &tools[i] // a copy of each would take longer than all else
		old, was := s.living[tool.Name]
		if was && old.tool.Same(tool) {
			diff.Kept++
			continue
		}
		within := &rest
		if was || len(s.gates[tool.Name]) > 0 { // it may have to wait for the end of the old one, which is not listed meanwhile
			within = nil
		}
		built, err := s.build(*tool, within)
		if err != nil {
			diff.Failed[tool.Name] = err
			continue
		}
		made[tool.Name] = built
		if was {
			diff.Changed = append(diff.Changed, tool.Name)
		} else {
			diff.Added = append(diff.Added, tool.Name)
		}
	}
	diff.Removed = s.removed(tools, &diff)
	slices.Sort(diff.Added)
	slices.Sort(diff.Changed)
	if len(made)+len(diff.Removed) == 0 && !s.stale {
		return diff
	}
	before := s.living
	s.living = maps.Clone(before)
	maps.Copy(s.living, made)
	for _, name := range diff.Removed {
		delete(s.living, name)
	}
	if c := s.exchange(before, made); c != nil {
		s.install(c)
	} else {
		s.publish()
	}
	for _, name := range diff.Changed { // nobody finds the old ones any more
		s.stop(before[name], "its description has changed")
	}
	for _, name := range diff.Removed {
		s.stop(before[name], "it is not among the tools any more")
	}
	return diff
}

// removed returns the names of the manifests that are not served any more, sorted. diff has what was kept, changed and failed.
func (s *Supervisor) removed(tools []manifest.Tool, diff *Diff) (names []string) {
	if diff.Kept+len(diff.Changed) == len(s.living) {
		return nil
	}
	stays := make(map[string]bool, len(tools))
	for i := range tools {
		_, failed := diff.Failed[tools[i].Name]
		stays[tools[i].Name] = !failed
	}
	for name := range s.living {
		if !stays[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// build makes the provider of one manifest, and starts its service if it has one. If the schemas of a peer cannot be compiled within
// rest, which build shortens, it counts as one that has not said yet what it offers, and its keeper compiles them in its turn (SPEC N2).
// nil means that there is no limit.
func (s *Supervisor) build(tool manifest.Tool, rest *time.Duration) (*living, error) {
	build, ok := s.opts.Build[tool.Kind]
	if !ok {
		return nil, fmt.Errorf("%s: this release of Orla does not serve tools of kind %q", tool.Source, tool.Kind)
	}
	built, err := build(tool)
	if err != nil {
		return nil, err
	}
	l := &living{tool: tool, provider: built}
	if l.peer, _ = built.(Peer); l.peer != nil {
		began := time.Now()
		offers := l.prepare(func() bool { return rest == nil || time.Since(began) < *rest }) // what its manifest says, or an earlier life
		if rest != nil {
			*rest -= time.Since(began)
		}
		if l.shown.Load() == nil {
			l.shown.Store(&shown{offers: &peer.Offers{Changed: offers.Changed}})
		}
	} else {
		l.list(built.Tools())
		for _, t := range l.tools {
			if err := l.inputs[t].err; err != nil {
				return nil, fmt.Errorf("%s: input schema of %q: %w", tool.Source, t.Name, err)
			}
		}
	}
	l.operator, _ = built.(Operator)
	if service, ok := built.(suture.Service); ok {
		token := s.tree.Add(&keeper{of: l, service: service, in: s, gate: s.gateOf(tool.Name)})
		l.token = &token
	}
	return l, nil
}

// stop ends the service of a provider that is not listed any more. It returns at once; the suture tree
// waits for the service. why is for the log.
func (s *Supervisor) stop(l *living, why string) {
	if l.token == nil {
		return
	}
	if r, ok := l.provider.(interface{ Retire(why string) }); ok {
		r.Retire(why)
	}
	if err := s.tree.Remove(*l.token); err != nil {
		s.opts.Log.Warn("stop a service", "tool", l.tool.Name, "err", err)
	}
}
