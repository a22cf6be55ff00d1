package offers

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// maxName is the longest name that clients accept (SPEC A3).
const maxName = 64

// scheme says how clients call what a capsule offers.
type scheme struct {
	own    string              // the capsule's name, for an item without a name
	prefix string              // before the names of the others
	fit    func(string) string // replaces what a name must not contain
	hash   string              // stands before a hash
}

// schemeOf returns the scheme for a number of things.
func schemeOf(t manifest.Tool, things int) scheme {
	s := scheme{own: t.Name, fit: manifest.AllowedName, hash: "_"}
	switch {
	case t.Runtime.ToolPrefix != nil:
		s.prefix = *t.Runtime.ToolPrefix
	case t.Runtime.Generated:
		s.prefix, s.fit, s.hash = manifest.Dashed(t.Name)+"--", manifest.Dashed, "-"
	case things > 1:
		s.prefix = t.Name + "__"
	}
	return s
}

func (s scheme) full(name string) string {
	if name == "" {
		return s.own
	}
	return s.prefix + name
}

// namesOf maps the capsule's name of each thing to the name that clients use. A single
// thing keeps its name; several get the capsule's name as a prefix (SPEC D7). Those of an
// McpServer are always SERVER--NAME (SPEC-TOOLS 3.5).
//
// A name that is too long, or that two things would share, ends in a hash of the full name,
// so that it does not depend on the order of the list. If one of the two needs no change to
// fit, it keeps the name without a hash. Names that differ in their case alone are one name
// (SPEC-TOOLS 8.4).
func namesOf(t manifest.Tool, own []string) map[string]string {
	s := schemeOf(t, len(own))
	same, unchanged := map[string]int{}, map[string]int{}
	for _, name := range own {
		plain := s.fit(s.full(name))
		if same[folded(plain)]++; plain == s.full(name) {
			unchanged[folded(plain)]++
		}
	}
	names := make(map[string]string, len(own))
	taken := map[string]bool{}
	for _, name := range own {
		plain := s.fit(s.full(name))
		if len(plain) <= maxName && (same[folded(plain)] == 1 || plain == s.full(name) && unchanged[folded(plain)] == 1) {
			names[name], taken[folded(plain)] = plain, true
		}
	}
	for _, name := range own {
		if names[name] == "" {
			names[name] = s.hashed(s.full(name), taken)
		}
	}
	return names
}

// folded makes names comparable that have only what MCP allows in them.
func folded(name string) string { return strings.ToLower(name) }

// hashed returns a name that ends in a hash of the full name and is not taken.
func (s scheme) hashed(full string, taken map[string]bool) string {
	plain := s.fit(full)
	sum := sha256.Sum256([]byte(full))
	for digits := 4; ; digits++ { // a name is taken only if somebody chose it to collide
		suffix := s.hash + hex.EncodeToString(sum[:digits])
		name := plain[:min(len(plain), maxName-len(suffix))] + suffix
		if !taken[folded(name)] || digits == len(sum)-1 {
			taken[folded(name)] = true
			return name
		}
	}
}

// name gives its tools and prompts the names that clients use, and takes out what is held.
func (o *Offering) name(n *named) {
	prompts := o.namesBut(ownNames(n.Prompts, func(p *mcp.Prompt) string { return p.Name }), pins.Prompt, n.held)
	n.Prompts = split(n, pins.Prompt, n.Prompts, func(p *mcp.Prompt) *string { return &p.Name }, prompts, n.prompts)
	tools := o.namesBut(ownNames(n.Tools, func(t *mcp.Tool) string { return t.Name }), pins.Tool, n.held)
	n.Tools = split(n, pins.Tool, n.Tools, func(t *mcp.Tool) *string { return &t.Name }, tools, n.tools)
	n.shown = tools
	o.pins.Named(tools, prompts)
}

// namesBut is namesOf, but what is held as new has a name only if no other thing has it then: it must not change the
// names of what is served.
func (o *Offering) namesBut(own []string, kind pins.Kind, held *pins.Held) map[string]string {
	var known, added []string
	for _, name := range own {
		if state, _ := held.State(kind, name); state == pins.New {
			added = append(added, name)
		} else {
			known = append(known, name)
		}
	}
	names := namesOf(o.tool, known)
	if len(added) == 0 {
		return names
	}
	taken := map[string]bool{}
	for _, name := range names {
		taken[folded(name)] = true
	}
	whole := namesOf(o.tool, own)
	for _, name := range added {
		if !taken[folded(whole[name])] {
			names[name] = whole[name]
		}
	}
	return names
}

// split names the items of a list, and returns those that are not held. The others go to n.Withheld.
func split[T any](n *named, kind pins.Kind, list []*T, nameOf func(*T) *string, names, own map[string]string) (served []*T) {
	for _, item := range list {
		name := nameOf(item)
		its := *name
		shown, is := names[its]
		if is {
			*name, own[shown] = shown, its
		}
		switch _, held := n.held.State(kind, its); {
		case !held:
			served = append(served, item)
		case is:
			tool, _ := any(item).(*mcp.Tool)
			n.Withheld = append(n.Withheld, peer.Withheld{Name: shown, Tool: tool, Why: n.held.Refusal(kind, its, shown)})
		}
	}
	return served
}
