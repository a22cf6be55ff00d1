package supervisor

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
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
	number  uint64                 // of the catalog
	naming
}

// naming is whose a name is. Names are folded.
type naming struct {
	// manifests are the names of manifests: of those that are there, and of those that were.
	manifests map[string]bool
	// prefixes are the names of those that have tools of their own, as names of these begin.
	prefixes map[string]bool
	// lent are the names of tools that are another's while that is away, and of tools that differ in their case alone.
	lent map[string]bool
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
func (c *Catalog) govern(others others, claims map[claim][]string) {
	c.governed.number = catalogs.Add(1)
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
	c.governed.names = sync.OnceValue(c.allNames)
	c.governed.peers = sync.OnceValue(c.peerTargets)
}

// own notes whose names are. A name stays that of a manifest that is away: a role for it does not mean what another one has meanwhile.
func (c *Catalog) own(others others, claims map[claim][]string) {
	n := &c.governed.naming
	n.manifests, n.prefixes = make(map[string]bool, len(claims)), map[string]bool{}
	add := func(name string, hasTools bool) {
		n.manifests[rules.Folded(name)] = true
		if hasTools {
			n.prefixes[rules.Folded(name)], n.prefixes[rules.Folded(manifest.Dashed(name))] = true, true
		}
	}
	for _, name := range others.faulty {
		add(name, false)
	}
	for i := range others.tools {
		add(others.tools[i].Name, others.tools[i].Kind == manifest.Capsule)
	}
	for k, line := range claims {
		if k.sort == aProvider || k.sort == aTool && slices.Contains(line, k.key) {
			add(k.key, k.sort == aProvider)
		}
	}
	by := map[string]string{} // whose a name is that does not say it
	for name, e := range c.entries {
		folded := rules.Folded(name)
		if _, isNamer := e.provider.(Namer); !isNamer || e.of.names(claim{aTool, name}) > 0 {
			continue
		}
		if first, twice := by[folded]; twice && first != e.of.tool.Name {
			n.lent[folded] = true
		}
		by[folded] = e.of.tool.Name
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
	all := make(map[string]bool, 4*len(c.entries))
	for _, e := range c.entries {
		for _, name := range c.targetOf(e).Names() {
			all[name] = true
		}
	}
	return all
}

// Told reports whether all peers have said what they offer: none has only let its time to do so pass.
func (c *Catalog) Told() bool { return c.known && len(c.silent) == 0 }

// governedEntry is what rules have to know of an entry.
type governedEntry struct {
	of      original // what the tool is at its provider; zero where it has no name of its own there
	aliases []string
	shown   string    // the name that clients have for it; "" if it is not known
	taken   bool      // another provider has that name
	listed  *mcp.Tool // what an alias calls; nil for others, and where that is not known
	target  *rules.Target
	in      uint64 // the number of the catalog in which it was so last

	forms  []string // PROVIDER__TOOL and the like
	nested bool     // they may be names of another provider's tools
}

// targetOf returns what a call of an entry would run. It is made at the first call, and again when the names
// of the tool, or what they mean, are others: an entry outlives its catalog.
func (c *Catalog) targetOf(e *entry) *rules.Target {
	g := e.target.Load()
	if g != nil && g.in == c.governed.number {
		return g.target
	}
	if g == nil || !c.isCurrent(e, g) {
		g = c.newTarget(e)
	} else {
		same := *g
		g = &same
	}
	g.in = c.governed.number
	e.target.Store(g)
	return g.target
}

// isCurrent reports whether what rules have to know of an entry is still so.
func (c *Catalog) isCurrent(e *entry, g *governedEntry) bool {
	return slices.Equal(g.aliases, c.governed.aliases[g.of]) && g.shown == c.governed.shown[g.of] && g.taken == c.isTaken(g.shown, g.of.provider) &&
		g.nested == c.isNested(g.forms, g.of.provider) && g.listed == c.calledBy(e, g)
}

// isTaken reports whether the name that clients have for a tool of a provider is another's: a role for that name means the other.
func (c *Catalog) isTaken(shown, provider string) bool {
	name, n := rules.Folded(shown), &c.governed.naming
	its := []string{rules.Folded(provider), rules.Folded(manifest.Dashed(provider))}
	switch {
	case slices.Contains(its, name):
		return false
	case n.manifests[name] || n.lent[name]:
		return true
	}
	isOwn := slices.ContainsFunc(its, func(own string) bool { return strings.HasPrefix(name, own+"__") || strings.HasPrefix(name, own+"--") })
	return rules.InProvider(name, func(other string) bool {
		return n.prefixes[other] && !slices.Contains(its, other) && (!isOwn || len(other) > len(provider))
	})
}

// isNested reports whether names of a provider's tool are as well such as tools of another provider have: GIT__HUB__READ of
// GIT, where there is a GIT__HUB. Roles for such a name mean that one, whose name is longer.
func (c *Catalog) isNested(forms []string, provider string) bool {
	return slices.ContainsFunc(forms, func(name string) bool {
		return rules.InProvider(rules.Folded(name), func(other string) bool { return len(other) > len(provider) && c.governed.prefixes[other] })
	})
}

// calledBy returns the tool that an alias calls; nil for what is no alias, and if nobody offers the tool now.
func (c *Catalog) calledBy(e *entry, g *governedEntry) *mcp.Tool {
	original := c.entries[c.governed.shown[g.of]]
	if e.of.tool.Kind != manifest.MCP || original == nil {
		return nil
	}
	return original.listed
}

func (c *Catalog) newTarget(e *entry) *governedEntry {
	tool := &e.of.tool
	g := &governedEntry{}
	names, own := []string{e.listed.Name, tool.Name}, []string(nil)
	if c.isTaken(e.listed.Name, tool.Name) {
		names, own = []string{tool.Name}, []string{e.listed.Name}
	}
	switch provider, isNamer := e.provider.(Namer); {
	case tool.Kind == manifest.MCP:
		g.of = original{tool.Resource.Server, tool.Resource.ServerTool}
	case isNamer:
		g.of = original{tool.Name, provider.OwnTool(e.listed.Name)}
	}
	if of := g.of; of != (original{}) {
		g.aliases = c.governed.aliases[of]
		g.forms = []string{of.provider + "__" + of.tool, of.provider + "--" + of.tool, manifest.Dashed(of.provider) + "--" + manifest.Dashed(of.tool)}
		names, own = append(append(names, of.provider), g.aliases...), append(own, of.tool)
		if g.nested = c.isNested(g.forms, of.provider); g.nested {
			own = append(own, g.forms...)
			names = slices.DeleteFunc(names, func(name string) bool { return name != tool.Name && slices.Contains(g.forms, name) })
		} else {
			names = append(names, g.forms...)
		}
		g.shown = c.governed.shown[of]
		g.taken = c.isTaken(g.shown, of.provider)
		switch {
		case g.shown == "":
		case g.taken, g.nested && slices.Contains(g.forms, g.shown):
			own = append(own, g.shown)
		default:
			names = append(names, g.shown)
		}
	}
	var capabilities []string
	if tool.Resource != nil {
		capabilities = tool.Resource.Capabilities
	}
	g.listed = c.calledBy(e, g)
	g.target = rules.NewTarget(names, own, c.classes(e, g), capabilities)
	return g
}

// classes returns what a call of an entry does. What an alias calls runs whatever the alias says of itself.
func (c *Catalog) classes(e *entry, g *governedEntry) []manifest.OperationClass {
	all := classesOf(&e.of.tool, e.listed)
	if g.listed == nil {
		return all
	}
	original := c.entries[c.governed.shown[g.of]]
	for _, class := range classesOf(&original.of.tool, original.listed) {
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
	all := make(map[Peer]*rules.Target, len(c.named))
	for name, p := range c.named {
		all[p] = rules.NewTarget([]string{name}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
	}
	for _, e := range c.entries {
		if p, ok := e.provider.(Peer); ok && all[p] != nil {
			all[p].Members = append(all[p].Members, c.targetOf(e))
		}
	}
	return all
}
