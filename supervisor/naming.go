package supervisor

import (
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor/claim"
	"github.com/orla-project/orla/supervisor/owner"
)

// naming is whose a name is (SPEC-TOOLS 8.4). Names are folded.
type naming struct {
	owner.Names
	// lent are the names of tools that are another's while that is away.
	lent map[string]bool
	// tools are the names of tools, each with its tool; the zero original for one that several have.
	tools func() map[string]original
}

// own notes whose names are. A name stays that of a manifest that is away: a role for it does not mean what another one has meanwhile.
func (c *Catalog) own(others others, claims map[claim.Claim][]string) {
	n := &c.governed.naming
	n.Names = owner.New(len(claims), len(c.servers))
	for name := range c.servers {
		n.Serve(name)
		n.Add(name, true)
	}
	for _, e := range c.entries {
		n.Serve(e.of.tool.Name)
	}
	for i := range others.tools {
		n.Serve(others.tools[i].Name)
		n.Add(others.tools[i].Name, others.tools[i].Kind == manifest.Capsule)
	}
	for k, line := range claims {
		if k.Sort == claim.Provider && c.servers[k.Key].Peer != nil {
			continue // it is there
		}
		if k.Sort == claim.Provider || k.IsManifest(line) {
			n.Add(k.Key, k.Sort == claim.Provider)
		}
	}
	for _, name := range others.faulty {
		n.Faulty(name)
	}
}

// toolNames finds whose the names of all tools are: first those that clients have, of which there are no two that differ in their case alone.
func (c *Catalog) toolNames() map[string]original {
	all := make(map[string]original, 4*len(c.entries))
	put := func(into map[string]original, name string, of original) {
		folded := rules.Folded(name)
		if other, there := into[folded]; there && other != of {
			of = original{}
		}
		into[folded] = of
	}
	formed := make(map[string]original, 3*len(c.entries))
	for name, e := range c.entries {
		if e.withheld == nil {
			put(all, name, e.original(name))
		} else {
			put(formed, name, e.original(name))
		}
		for _, form := range e.original(name).forms() {
			put(formed, form, e.original(name))
		}
	}
	for name, of := range formed {
		if _, there := all[name]; !there {
			all[name] = of
		}
	}
	return all
}

// original returns what the tool of an entry is at its provider.
func (e *entry) original(name string) original {
	if tool := &e.of.tool; tool.Kind == manifest.MCP {
		return original{tool.Resource.Server, tool.Resource.ServerTool}
	}
	if provider, isNamer := e.provider.(Namer); isNamer {
		return original{e.of.tool.Name, provider.OwnTool(name)}
	}
	return original{e.of.tool.Name, ""}
}

// forms are the names of a tool with that of its provider, whatever clients call it.
func (of original) forms() []string {
	if of.tool == "" { // not of a provider with tools of its own
		return nil
	}
	return []string{of.provider + "__" + of.tool, of.provider + "--" + of.tool, manifest.Dashed(of.provider) + "--" + manifest.Dashed(of.tool)}
}

// nameLists are the names of tools that several entries may call.
type nameLists struct {
	mu sync.Mutex // guards of
	of map[original]*rules.NameList
}

// namesOf returns the names of the tool of an entry. They are made once for all entries of the tool, and are those of before if nothing is
// different.
func (c *Catalog) namesOf(e *entry, before *governedEntry) *rules.NameList {
	its := e.original(e.listed.Name)
	if its.tool == "" {
		return c.listOf(its, e.listed.Name)
	}
	lists := c.governed.lists
	lists.mu.Lock()
	defer lists.mu.Unlock()
	list := lists.of[its]
	if list == nil {
		if list = c.listOf(its); before != nil && before.names.Equal(list) {
			list = before.names
		}
		lists.of[its] = list
	}
	return list
}

// listOf returns the names of a tool: those of its provider and of its aliases, its forms, and more. Roles give nothing by those that are
// another's, or may be.
func (c *Catalog) listOf(its original, more ...string) *rules.NameList {
	aliases := c.governed.aliases[its]
	all := slices.Concat(more, []string{its.provider}, aliases, its.forms())
	if shown := c.governed.shown[its]; shown != "" {
		all = append(all, shown)
	}
	var names, own []string
	if its.tool != "" {
		own = append(own, its.tool)
	}
	manifests := make(map[string]bool, len(aliases)+1)
	manifests[its.provider] = true
	for _, name := range aliases {
		manifests[name] = true
	}
	for _, name := range all {
		if c.has(its, name, manifests) {
			names = append(names, name)
		} else {
			own = append(own, name)
		}
	}
	return rules.NewNameList(names, own)
}

// has reports whether a name is that of a tool, or of one of the manifests by which it is called.
func (c *Catalog) has(tool original, name string, manifests map[string]bool) bool {
	n, folded := &c.governed.naming, rules.Folded(name)
	if of, isManifest := n.Manifest(folded); isManifest {
		return of != "" && manifests[of]
	}
	provider, begins := n.Provider(folded)
	switch {
	case n.lent[folded], n.tools()[folded] != tool:
		return false
	case begins && provider == "": // several providers: it is who shows it
		shown := c.governed.shown[tool]
		return shown != "" && rules.Folded(shown) == folded
	}
	return !begins || provider == tool.provider
}
