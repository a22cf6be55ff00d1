package cgroup

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Give returns what the program that follows in this process needs to adopt the Group of a Root. It reports false if
// that cannot be: the Group is another Root's, or one of cgroup v1. A nil Group has no State.
func (g *Group) Give(of *Root) (*State, bool) {
	switch {
	case g == nil:
		return nil, true
	case g.root != of, g.legacy != nil:
		return nil, false
	}
	return &State{Name: g.name, Applied: g.applied}, true
}

// Reopen is Open for a program that follows another one in this process: it keeps the Groups that were given.
func Reopen(kept Kept, log *slog.Logger) (root *Root, reason string) {
	r, err := take(kept.Dir, os.Getpid(), log, kept.Names...)
	if err != nil {
		return nil, err.Error()
	}
	return r, ""
}

// Adopt returns a Group that the program before has given. A nil Root returns nil.
func (r *Root) Adopt(s State) *Group {
	if r == nil {
		return nil
	}
	g := &Group{root: r, name: s.Name, dir: filepath.Join(r.folders()[0], s.Name), applied: s.Applied}
	r.mu.Lock()
	r.names[s.Name] = true
	r.mu.Unlock()
	if dir, err := os.Open(g.dir); err == nil {
		g.file = dir
	}
	return g
}

// Kept returns what Reopen needs; nil if nothing can be kept. It is called when only Groups that were given are left.
func (r *Root) Kept() *Kept {
	if r == nil || r.legacy != nil || r.claimed {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Kept{Dir: r.dir, Names: slices.Sorted(maps.Keys(r.names))}
}
