package governance

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// bindingsOf returns what a configuration gives to its callers.
func bindingsOf(cfg *config.Loaded) (bindings []rules.Binding, toolsets []rules.Toolset) {
	for i, c := range cfg.Callers {
		at := fmt.Sprintf("%s: callers[%d]", cmp.Or(cfg.File, "the configuration"), i)
		of := func(names []string, key string) (list []manifest.Reference) {
			for _, name := range names {
				list = append(list, manifest.Reference{Name: name, At: at + "." + key})
			}
			return list
		}
		bindings = append(bindings, rules.Binding{
			Caller: c.Name, Group: c.Group, MaySpeakFor: c.MaySpeakFor, At: at,
			Roles: of(c.Roles, "roles"), Toolsets: of(c.Toolsets, "toolsets"),
		})
	}
	for _, t := range cfg.Toolsets {
		toolsets = append(toolsets, rules.Toolset{Name: t.Name, Tools: t.Tools})
	}
	return bindings, toolsets
}

// Check adds a problem that denies every call for each rule that names nothing, as far as that can be known
// before any capsule runs (SPEC-TOOLS 8.3). others are tools that are there and not among those found.
func Check(found *manifest.Result, cfg *config.Loaded, others []manifest.Tool) {
	bindings, toolsets := bindingsOf(cfg)
	set := rules.New(found.Rules, bindings, toolsets)
	if set == nil {
		return
	}
	all, any := namesOf(found.Tools, others), mayBeOfCapsule(found.Tools) || mayBeOfCapsule(others)
	for _, p := range found.Problems {
		all.tools[rules.Folded(p.Tool)] = true // it is there, and has a fault
	}
	known := rules.Known{
		Tool:   func(name string) bool { return any || all.mayHave(name) },
		Caller: callersOf(cfg),
	}
	if nameless := set.Nameless(known); len(nameless) > 0 {
		named := unservedOf(found.Problems)
		for _, f := range nameless {
			found.Problems = append(found.Problems, problemOf(named.explain(f)))
		}
	}
	for _, f := range append(set.Opening(), ofNobody(cfg)...) {
		found.Problems = append(found.Problems, manifest.Problem{Path: f.File(), Severity: manifest.Warning, Err: f})
	}
}

// Unnamed returns a problem for each rule in force that is for a tool which is neither among those found, nor in a catalog of them,
// unless it is there already. While a capsule has not said which tools it has, CAPSULE__TOOL may be one of them.
func (g *Gate) Unnamed(c *supervisor.Catalog, found *manifest.Result) (list []manifest.Problem) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recallLocked()
	all, told := namesOf(found.Tools), c.Told()
	known := func(name string) bool {
		return g.seen[name] || all.tools[name] || !told && all.mayHave(name) || c.Named(name)
	}
	nameless := g.now().set.Nameless(rules.Known{Tool: known})
	if len(nameless) == 0 {
		return nil
	}
	named, said := unservedOf(found.Problems), map[string]bool{}
	for _, p := range found.Problems {
		said[p.Err.Error()] = true
	}
	for _, f := range nameless {
		if f = named.explain(f); f.Tool != "" && !said[f.Error()] {
			list = append(list, problemOf(f))
		}
	}
	return list
}

// unserved is what is wrong with files that may be tools, by the folded names that these would have.
type unserved map[string][]string

// unservedOf finds the files among the problems of a search. Those of rules are left out: a document may have the name of a tool, too.
func unservedOf(problems []manifest.Problem) unserved {
	named := unserved{}
	for _, p := range problems {
		if _, ofRule := errors.AsType[rules.Fault](p.Err); ofRule || p.Tool != "" || p.Path == "" {
			continue
		}
		base, text := filepath.Base(p.Path), fmt.Sprintf("%s %v", p.Path, p.Err)
		whole, short := rules.Folded(base), rules.Folded(strings.TrimSuffix(base, filepath.Ext(base)))
		if named[whole] = append(named[whole], text); short != whole {
			named[short] = append(named[short], text)
		}
	}
	return named
}

// explain adds to a rule for a tool that is not there what is wrong with each file that would be the tool.
func (named unserved) explain(f rules.Fault) rules.Fault {
	if f.Tool != "" {
		f.Msg = strings.Join(append([]string{f.Msg}, named[f.Tool]...), "; ")
	}
	return f
}

func problemOf(f rules.Fault) manifest.Problem {
	return manifest.Problem{Path: f.File(), Severity: manifest.Fault, Err: f, Denies: true}
}

// nameSet are the folded names of manifests, and of those that have tools of their own.
type nameSet struct{ tools, providers map[string]bool }

func namesOf(lists ...[]manifest.Tool) nameSet {
	all := nameSet{map[string]bool{}, map[string]bool{}}
	for _, tools := range lists {
		for _, t := range tools {
			all.tools[rules.Folded(t.Name)] = true
			if t.Kind == manifest.Capsule {
				all.providers[rules.Folded(t.Name)], all.providers[rules.Folded(manifest.Dashed(t.Name))] = true, true
			}
		}
	}
	return all
}

// ofNobody returns a sentence for each entry of callers that is for nobody: what it limits is not limited for whom it is meant. A token that
// is gone for a while leaves such an entry, so it is not a fault.
func ofNobody(cfg *config.Loaded) (list []rules.Fault) {
	known, alike := map[string]bool{}, map[string]string{} // by the exact and by the folded name
	add := func(name string) { known[name], alike[rules.Folded(name)] = true, name }
	for _, name := range config.OwnCallers {
		add(name)
	}
	for _, c := range cfg.Callers {
		for _, agent := range c.MaySpeakFor {
			add(rules.Exact(agent))
		}
	}
	for _, t := range cfg.Auth.Tokens {
		add(t.Name)
	}
	for i, c := range cfg.Callers {
		at := fmt.Sprintf("%s: callers[%d]", cmp.Or(cfg.File, "the configuration"), i)
		switch issues := cfg.Auth.OAuth.Issuer != ""; {
		case c.Group != "" && (!issues || cfg.Auth.OAuth.GroupsClaim == ""):
			list = append(list, rules.Fault{At: at, Msg: fmt.Sprintf("no caller is in the group %q, so that the entry holds for nobody: groups are those of access tokens, with auth.oauth.groups_claim", c.Group)})
		case c.Group != "", known[c.Name], issues && config.IsIssued(c.Name):
		default:
			list = append(list, rules.Fault{At: at, Msg: fmt.Sprintf("no caller or agent has the name %q, so that the entry holds for nobody, and limits nobody%s", c.Name, meant(c.Name, alike[rules.Folded(c.Name)], issues))})
		}
	}
	return list
}

// meant says what name a wrong one may be meant for. alike differs from it in its case alone; "" if there is none.
func meant(name, alike string, issues bool) string {
	switch {
	case alike != "":
		return fmt.Sprintf("; did you mean %q?", alike)
	case name == "local":
		return `; callers on this machine are "stdio", "cli" and "console"`
	case issues:
		return fmt.Sprintf("; callers with access tokens are oauth: and the subject, such as %q", "oauth:"+name)
	}
	return "; auth.tokens names callers"
}

// mayHave reports whether a folded name is that of a manifest, or may be that of a tool of a provider.
func (n nameSet) mayHave(folded string) bool {
	return n.tools[folded] || rules.InProvider(folded, func(name string) bool { return n.providers[name] })
}

// mayBeOfCapsule reports whether a capsule may offer a tool by any name: only its process knows the names.
func mayBeOfCapsule(tools []manifest.Tool) bool {
	return slices.ContainsFunc(tools, func(t manifest.Tool) bool { return t.Kind == manifest.Capsule && !t.Runtime.Generated })
}

// callersOf returns a test of names of callers; nil if any name may be one.
func callersOf(cfg *config.Loaded) func(folded string) bool {
	if cfg.Auth.OAuth.Issuer != "" {
		return nil // the authorization server knows them
	}
	all := map[string]bool{}
	for _, name := range config.OwnCallers {
		all[name] = true
	}
	for _, t := range cfg.Auth.Tokens {
		all[rules.Folded(t.Name)] = true
	}
	return func(folded string) bool { return all[folded] }
}
