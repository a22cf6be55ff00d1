package supervisor

import (
	"cmp"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/manifest"
)

// exchange returns the catalog that publish would make, if all that has changed since the last one are the tools of made, and these are
// in it by the same rights as those before; otherwise nil. It costs little more than the tools that have changed. The caller holds applying.
func (s *Supervisor) exchange(before, made map[string]*living) *Catalog {
	last := s.catalog.Load()
	if s.stale || len(s.living) != len(before) {
		return nil
	}
	for name, l := range made {
		if old, was := before[name]; !was || !l.replaces(old) {
			return nil
		}
	}
	next := *last // what rules know of all the other tools stays: it is by names, which are the same
	next.changed = make(chan struct{})
	next.Changed = next.changed
	next.entries, next.Tools = maps.Clone(last.entries), slices.Clone(last.Tools)
	for name, l := range made {
		for _, t := range l.tools {
			e, served := last.entries[t.Name]
			at, listed := slices.BinarySearchFunc(next.Tools, t.Name, func(t *mcp.Tool, name string) int { return cmp.Compare(t.Name, name) })
			if !served || !listed || e.of != before[name] { // another serves it
				continue
			}
			next.entries[t.Name], next.Tools[at] = s.entry(l, t), t
		}
	}
	return &next
}

// replaces reports whether a provider has the same tools, by their names, as one before of the same manifest's name, and nothing
// else that has to do with other providers.
func (l *living) replaces(old *living) bool {
	return l.isPlain() && old.isPlain() && l.tool.Kind == old.tool.Kind && l.tool.Source == old.tool.Source && l.owned() == old.owned() &&
		slices.EqualFunc(l.tools, old.tools, func(a, b *mcp.Tool) bool { return a.Name == b.Name })
}

// isPlain reports whether a provider has tools that never change, under its own names alone, and nothing else.
func (l *living) isPlain() bool {
	if l.tool.Kind == manifest.MCP {
		return false
	}
	switch l.provider.(type) {
	case Peer, Follower, Talker, Namer, Withholder:
		return false
	}
	return true
}
