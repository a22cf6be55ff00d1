package supervisor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor/claim"
)

// A Namer is a Peer whose tools have other names of their own than those that clients use.
type Namer interface {
	// OwnTool returns the peer's own name of a tool.
	OwnTool(listed string) string
}

// governed is what rules have to know of a catalog, as far as it is not made at the first call.
type governed struct {
	aliases map[original][]string // tools of type mcp, by what they call
	shown   map[original]string   // the names that clients have for what is listed
	peers   func() map[Peer]*rules.Target
	names   func() map[string]bool // made when it is used
	ruled   *atomic.Bool           // somebody has asked for peers or names, of this catalog or another
	number  uint64                 // of the catalog, and of those that differ from it in plain tools alone
	lists   *nameLists
	naming
}

// An Originals is a Peer that knows its tools by their own names, also those that it does not serve.
type Originals interface {
	// Original returns a tool as the peer has listed it. known is false until it has listed its tools.
	Original(name string) (tool *mcp.Tool, known bool)
}

// catalogs counts catalogs.
var catalogs atomic.Uint64

// original is a tool of a provider, by the name of its manifest and the tool's own name.
type original struct{ provider, tool string }

// others are what was found and is not applied.
type others struct {
	tools  []manifest.Tool
	faulty []string // names of manifests
}

// KnowOthers tells of what was found and is not applied, before Apply: of tools, and of the names of manifests that have faults.
// Rules for the names of tools of type mcp hold, and no name here is that of another's tool in roles.
func (s *Supervisor) KnowOthers(tools []manifest.Tool, faulty []string) {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.stale = s.stale || !slices.Equal(s.others.faulty, faulty)
	s.others = others{tools, faulty}
}

// govern notes what has several names, and whose they are (SPEC-TOOLS 8.4). claims are those of this catalog.
func (c *Catalog) govern(others others, claims map[claim.Claim][]string) {
	c.governed.aliases, c.governed.shown = map[original][]string{}, map[original]string{}
	for name, e := range c.entries {
		tool := &e.of.tool
		if tool.Kind == manifest.MCP {
			of := original{tool.Resource.Server, tool.Resource.ServerTool}
			c.governed.aliases[of] = append(c.governed.aliases[of], name)
		} else if provider, ok := e.provider.(Namer); ok {
			c.governed.shown[original{tool.Name, provider.OwnTool(name)}] = name
		}
	}
	for _, tool := range others.tools {
		if tool.Kind == manifest.MCP {
			of := original{tool.Resource.Server, tool.Resource.ServerTool}
			c.governed.aliases[of] = append(c.governed.aliases[of], tool.Name)
		}
	}
	for of, names := range c.governed.aliases {
		slices.Sort(names)
		c.governed.aliases[of] = slices.Compact(names)
	}
	c.own(others, claims)
	c.governed.tools = sync.OnceValue(c.toolNames)
	c.governed.number = catalogs.Add(1)
	c.governed.lists = &nameLists{of: map[original]*rules.NameList{}}
	c.governed.names = sync.OnceValue(c.allNames)
	c.governed.peers = sync.OnceValue(c.peerTargets)
}

// ready makes what callers would wait for: it costs in proportion to all tools.
func (c *Catalog) ready() {
	c.governed.tools()
	if c.governed.ruled.Load() { // there are rules
		c.governed.names()
		c.governed.peers()
	}
}

// Target returns what a call of a tool would run; nil if there is no such tool.
func (c *Catalog) Target(tool string) *rules.Target {
	if e, ok := c.entries[tool]; ok {
		return c.targetOf(e)
	}
	return nil
}

// TargetOfPeer returns what rules say of a provider by its own name; nil if it is not served.
func (c *Catalog) TargetOfPeer(p Peer) *rules.Target {
	if p == nil {
		return nil
	}
	return c.governed.peers()[p]
}

// TargetOfPrompt returns the same for the provider of a prompt.
func (c *Catalog) TargetOfPrompt(name string) *rules.Target { return c.TargetOfPeer(c.prompts[name]) }

// TargetOfResource returns the same for the provider that a resource belongs to.
func (c *Catalog) TargetOfResource(uri string) *rules.Target {
	p, _ := c.Holder(uri)
	return c.TargetOfPeer(p)
}

// TargetOfTemplate returns the same for the provider of a resource template.
func (c *Catalog) TargetOfTemplate(uriTemplate string) *rules.Target {
	return c.TargetOfPeer(c.templates[uriTemplate])
}

// Named reports whether rules for a folded name are about a tool, or about a provider. The first use costs in proportion to the tools.
func (c *Catalog) Named(folded string) bool { return c.governed.names()[folded] }

// allNames returns the folded names by which rules know tools and providers.
func (c *Catalog) allNames() map[string]bool {
	c.governed.ruled.Store(true)
	all := make(map[string]bool, 4*len(c.entries))
	seen := make(map[*rules.NameList]bool, len(c.entries))
	for _, e := range c.entries {
		list := c.governedOf(e).names
		if seen[list] {
			continue
		}
		seen[list] = true
		for _, name := range list.Names() {
			all[name] = true
		}
	}
	return all
}

// Told reports whether all peers have said what they offer: none has only let its time to do so pass.
func (c *Catalog) Told() bool { return len(c.awaited) == 0 }

// governedEntry is what rules have to know of an entry.
type governedEntry struct {
	names  *rules.NameList
	calls  called
	target *rules.Target
	in     uint64 // the number of the catalog in which it was so last
}

// called is what an alias calls.
type called struct {
	tool    *mcp.Tool // nil if nobody knows it
	of      *living   // its provider; nil for one that is not there
	nothing bool      // the provider is there and has no such tool, or the entry is not an alias
}

// targetOf returns what a call of an entry would run. It is made at the first call, and again when the names
// of the tool, or what they mean, are others: an entry outlives its catalog.
func (c *Catalog) targetOf(e *entry) *rules.Target { return c.governedOf(e).target }

func (c *Catalog) governedOf(e *entry) *governedEntry {
	before := e.target.Load()
	if before != nil && before.in == c.governed.number {
		return before
	}
	g := &governedEntry{calls: c.calledBy(e), in: c.governed.number}
	g.names = c.namesOf(e, before)
	if before != nil && before.calls == g.calls && before.names.Equal(g.names) {
		g.target = before.target
	} else {
		var capabilities []string
		if e.of.tool.Resource != nil {
			capabilities = e.of.tool.Resource.Capabilities
		}
		g.target = g.names.Target(e.listed.Name, classes(e, g.calls), capabilities)
		g.target.Define = func() string { return definition(e.listed, g.calls.tool) }
	}
	e.target.Store(g)
	return g
}

// definition returns a digest of what clients are told of a tool, and of what an alias calls.
func definition(listed, calls *mcp.Tool) string {
	digest := pins.DigestOf(listed).String()
	if calls != nil {
		digest += " " + pins.DigestOf(calls).String()
	}
	return digest
}

// calledBy returns what an alias calls.
func (c *Catalog) calledBy(e *entry) called {
	if e.of.tool.Kind != manifest.MCP {
		return called{nothing: true}
	}
	server := c.serverOf(e)
	p, isOriginals := server.Peer.(Originals)
	if !isOriginals {
		return called{}
	}
	tool, known := p.Original(e.of.tool.Resource.ServerTool)
	return called{tool: tool, of: server.of, nothing: known && tool == nil}
}

// isKnown reports whether somebody knows what a call does.
func (c called) isKnown() bool { return c.tool != nil || c.nothing }

// settled waits until it is known what an alias calls, so that a call is judged by what it does (SPEC-TOOLS 8.5). It returns the catalog
// and the entry to go on with; if the server does not say it within the tool's timeout, a call may do anything.
func (s *Supervisor) settled(ctx context.Context, c *Catalog, e *entry) (*Catalog, *entry) {
	if e.of.tool.Kind != manifest.MCP || !c.awaits(e) {
		return c, e
	}
	ctx, cancel := within(ctx, e.timeout, nil)
	defer cancel()
	for name := e.listed.Name; e != nil && c.awaits(e) && c.Wait(ctx) == nil; {
		c = s.catalog.Load()
		e = c.entries[name]
	}
	return c, e
}

// awaits reports whether the server of an alias has not said yet what the alias calls, and will.
func (c *Catalog) awaits(e *entry) bool {
	if e.of.tool.Kind != manifest.MCP || c.governedOf(e).calls.isKnown() {
		return false
	}
	server := c.serverOf(e)
	_, isOriginals := server.Peer.(Originals)
	return isOriginals && (!server.Offers().Known || c.calledBy(e).isKnown()) // then there is another catalog soon
}

// anyClass is what a call may do of which nobody knows what it does.
var anyClass = []manifest.OperationClass{manifest.ClassRead, manifest.ClassWrite, manifest.ClassDelete, manifest.ClassAdmin}

// classes returns what a call of an entry does. What an alias calls runs whatever the alias says of itself. While nobody knows that, a
// call may do anything.
func classes(e *entry, calls called) []manifest.OperationClass {
	all := classesOf(&e.of.tool, e.listed)
	if calls.nothing {
		return all
	}
	others := anyClass
	if calls.tool != nil {
		others = classesOf(&calls.of.tool, calls.tool)
	}
	for _, class := range others {
		if !slices.Contains(all, class) {
			all = append(slices.Clip(all), class)
		}
	}
	return all
}

// classesOf returns what a call does: as its manifest says, else as the hints of the tool say, else by the risk
// (SPEC-TOOLS 8.5).
func classesOf(tool *manifest.Tool, listed *mcp.Tool) []manifest.OperationClass {
	r, hints := tool.Resource, listed.Annotations
	switch {
	case r != nil && tool.Annotations != nil && len(r.OperationClasses) > 0: // somebody wrote them
		return r.OperationClasses
	case hints != nil && hints.DestructiveHint != nil && *hints.DestructiveHint:
		return []manifest.OperationClass{manifest.ClassDelete}
	case hints != nil && hints.ReadOnlyHint:
		return []manifest.OperationClass{manifest.ClassRead}
	case hints != nil:
		return []manifest.OperationClass{manifest.ClassWrite}
	case r != nil && len(r.OperationClasses) > 0:
		return r.OperationClasses
	}
	return []manifest.OperationClass{manifest.ClassRead}
}

// peerTargets makes the targets of all providers that live, each with those of its tools.
func (c *Catalog) peerTargets() map[Peer]*rules.Target {
	c.governed.ruled.Store(true)
	all := make(map[Peer]*rules.Target, len(c.servers))
	for name, s := range c.servers {
		names, own := []string{name}, []string(nil)
		if served, _ := c.governed.Manifest(rules.Folded(name)); served != name { // another's as well
			names, own = own, names
		}
		all[s.Peer] = rules.NewTarget(names, own, []manifest.OperationClass{manifest.ClassRead}, nil)
	}
	for _, e := range c.entries {
		if p, ok := e.provider.(Peer); ok && all[p] != nil {
			all[p].Members = append(all[p].Members, c.targetOf(e))
		}
	}
	return all
}
