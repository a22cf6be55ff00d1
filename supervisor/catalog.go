package supervisor

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/manifest"
)

// publish replaces the catalog by one of what is living now. The caller holds
// applying, or is New.
func (s *Supervisor) publish() {
	changed := make(chan struct{})
	told := map[string]bool{}
	warn := func(why, what string, l *living) {
		key := why + "\x00" + what + "\x00" + l.tool.Source
		if told[key] = true; !s.told[key] {
			s.opts.Log.Warn("something that a capsule offers is not served", "what", what, "source", l.tool.Source, "why", why)
		}
	}
	next := &Catalog{
		Talks:     map[string]bool{},
		Changed:   changed,
		changed:   changed,
		entries:   make(map[string]*entry, len(s.living)),
		resources: map[string]Peer{},
		templates: map[string]Peer{},
		prompts:   map[string]Peer{},
		named:     map[string]Peer{},
		known:     true,
	}
	for name, l := range s.living {
		if l.peer != nil {
			next.named[name] = l.peer
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.living)) {
		l := s.living[name]
		if f, ok := l.provider.(Follower); ok {
			f.Follow(next.Peer)
			l.tools = f.Tools()
			l.forget()
		}
		talks := false
		if t, ok := l.provider.(Talker); ok {
			talks = t.Talks()
		}
		if l.peer != nil {
			offers := l.shown.Load().offers
			l.tools, talks = offers.Tools, offers.Talks
			next.known = next.known && offers.Known
			l.forget()
			next.peers = append(next.peers, l.peer)
			next.Resources = adopt(warn, next.Resources, next.resources, l, offers.Resources, func(r *mcp.Resource) string { return r.URI })
			next.Templates = adopt(warn, next.Templates, next.templates, l, offers.Templates, func(t *mcp.ResourceTemplate) string { return t.URITemplate })
			next.Prompts = adopt(warn, next.Prompts, next.prompts, l, offers.Prompts, func(p *mcp.Prompt) string { return p.Name })
		}
		for _, t := range l.tools {
			if _, taken := next.entries[t.Name]; taken {
				warn("another tool has its name, and comes first", t.Name, l)
				continue
			}
			input, err := l.input(t)
			if err != nil { // a peer's; it has been told so
				warn("its input schema: "+err.Error(), t.Name, l)
				continue
			}
			e := &entry{of: l.tool.Name, provider: l.provider, input: input, timeout: l.tool.Run.Timeout, late: tooLate(t.Name, l.tool.Run.Timeout)}
			e.attempt = s.attempts(l.tool, t, e)
			next.entries[t.Name] = e
			next.Tools = append(next.Tools, t)
			if talks {
				next.Talks[t.Name] = true
			}
		}
	}
	s.told = told
	slices.SortFunc(next.Tools, func(a, b *mcp.Tool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(next.Resources, func(a, b *mcp.Resource) int { return cmp.Compare(a.URI, b.URI) })
	slices.SortFunc(next.Templates, func(a, b *mcp.ResourceTemplate) int { return cmp.Compare(a.URITemplate, b.URITemplate) })
	slices.SortFunc(next.Prompts, func(a, b *mcp.Prompt) int { return cmp.Compare(a.Name, b.Name) })
	if old := s.catalog.Swap(next); old != nil {
		close(old.changed)
	}
}

// adopt adds what a peer offers to what is listed, but for what another one
// offers already: the first in order serves.
func adopt[T any](warn func(why, what string, l *living), listed []*T, taken map[string]Peer, l *living, offered []*T, key func(*T) string) []*T {
	for _, item := range offered {
		if _, is := taken[key(item)]; is {
			warn("another capsule offers the same, and comes first", key(item), l)
			continue
		}
		taken[key(item)] = l.peer
		listed = append(listed, item)
	}
	return listed
}

// Wait returns when c is out of date or ctx ends, and reports which by ctx's error.
func (c *Catalog) Wait(ctx context.Context) error {
	select {
	case <-c.Changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Peer returns the peer of a manifest, by its name.
func (c *Catalog) Peer(name string) (Peer, bool) {
	p, ok := c.named[name]
	return p, ok
}

// Of is the name of the manifest that a tool comes from; "" if there is no such
// tool.
func (c *Catalog) Of(tool string) string {
	if e, ok := c.entries[tool]; ok {
		return e.of
	}
	return ""
}

// Known reports whether every peer had said what it offers, or had its time to,
// when the catalog was made (SPEC D7a).
func (c *Catalog) Known() bool { return c.known }

// Settle waits until every peer has said what it offers, or had its time to, or
// ctx ends.
func (s *Supervisor) Settle(ctx context.Context) {
	for c := s.Catalog(); !c.Known(); c = s.Catalog() {
		if c.Wait(ctx) != nil {
			return
		}
	}
}

// Starting names the providers that have not been ready since they are there,
// and may yet be.
func (s *Supervisor) Starting() []string {
	s.applying.Lock()
	defer s.applying.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.living)) {
		if p := s.living[name].peer; p != nil && !p.Life().Settled {
			names = append(names, name)
		}
	}
	return names
}

// Lives tells of each provider that lives, by its name.
func (s *Supervisor) Lives() map[string]peer.Life {
	s.applying.Lock()
	peers := map[string]Peer{}
	for name, l := range s.living {
		if l.peer != nil {
			peers[name] = l.peer
		}
	}
	s.applying.Unlock()
	lives := make(map[string]peer.Life, len(peers))
	for name, p := range peers {
		lives[name] = p.Life()
	}
	return lives
}

// Served is a manifest that is being served.
type Served struct {
	Tool  manifest.Tool
	Lives bool // its provider lives: a new one means a new process
	// Listed are those of its tools that clients can call, by name. They must
	// not be modified.
	Listed []*mcp.Tool
}

// Manifests returns the manifests that are being served, by name.
func (s *Supervisor) Manifests() []Served {
	s.applying.Lock()
	defer s.applying.Unlock()
	catalog := s.catalog.Load()
	var served []Served
	for _, name := range slices.Sorted(maps.Keys(s.living)) {
		l := s.living[name]
		one := Served{Tool: l.tool, Lives: l.peer != nil}
		for _, t := range l.tools {
			if e, ok := catalog.entries[t.Name]; ok && e.provider == l.provider {
				one.Listed = append(one.Listed, t)
			}
		}
		slices.SortFunc(one.Listed, func(a, b *mcp.Tool) int { return cmp.Compare(a.Name, b.Name) })
		served = append(served, one)
	}
	return served
}

// Updated delivers the URIs of resources that peers say have changed. It has
// one reader.
func (s *Supervisor) Updated() <-chan string { return s.updated }
