// Package rules decides who may call what (SPEC-TOOLS 8.1 to 8.5). Nothing in it waits, reads or remembers:
// the same documents, caller and tool give the same decision.
package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// Binding says what the operator has given to a caller, or to all callers of a group (SPEC N1).
type Binding struct {
	Caller      string // "" for a group
	Group       string // "" for a caller
	Roles       []manifest.Reference
	Toolsets    []manifest.Reference
	MaySpeakFor []string // agents
	At          string   // where it stands
}

// Toolset is a named list of tools. "*" in a name stands for any characters.
type Toolset struct {
	Name  string
	Tools []string
}

// Caller is who makes a call.
type Caller struct {
	Name   string
	Groups []string
	Agent  string // whom it says to act for; "" for nobody
	Task   string
}

// Decision is what the rules say of a call.
type Decision struct {
	Verdict manifest.Verdict
	// Rule is what decided, with the place where it stands; "" where no rule did.
	Rule string
	// Why says it in a sentence, for the operator. A caller must not read it: it names rules.
	Why string
	// Class is the operation class that the verdict is about; "" if it is about all.
	Class manifest.OperationClass
	// Approvers may decide, with ApprovalRequired: at least one.
	Approvers []manifest.Approver
}

// Set is what holds at one moment. It is never changed. A nil Set allows everything.
type Set struct {
	blocked  map[string][]*policy // by the folded name of a tool; "*" for all tools
	required map[string][]*permission
	byCaller map[string]*binding // by the exact name: subjects of an issuer may differ in their case alone
	byGroup  map[string]*binding // the same
	byTask   bool                // a policy names a task
	asks     bool                // a ToolPermission wants approvals
	roles    map[string]*rights  // by name
	mentions
	shut

	scoped     scopedRules
	identities identities
}

// mentions are the names in rules and bindings.
type mentions struct {
	bound      map[string]bool      // folded names of callers and groups with a binding, and of agents that they may act for
	mentioned  map[string]bool      // callers, groups and agents that a rule or a binding names
	references []reference          // what has to name something
	unbound    []manifest.Reference // roles and toolsets that bindings name and nobody has defined
}

// shut is for a Set that denies everything.
type shut struct {
	closed bool
	before *Set // what held last
	narrow bool // that is not known
}

type policy struct {
	manifest.Policy
	systems, tasks, blocked map[string]bool // folded
	order                   int
}

type permission struct {
	manifest.Permission
	agents   map[string]bool // folded
	exact    map[string]bool // the same with their case
	tool     string          // folded
	required []manifest.Right
	rule     string // its Decision.Rule
	order    int
}

// binding is a Binding with what its roles allow.
type binding struct {
	Binding
	rights   rights
	hasRoles bool
	toolset  *globs          // nil for all tools
	speaks   map[string]bool // agents
	view     string          // the same for bindings with the same roles and toolsets
}

// New returns the Set of documents and bindings; nil if there is neither.
func New(documents manifest.Rules, bindings []Binding, toolsets []Toolset) *Set {
	if documents.Empty() && len(bindings) == 0 {
		return nil
	}
	s := &Set{
		blocked: map[string][]*policy{}, required: map[string][]*permission{},
		byCaller: map[string]*binding{}, byGroup: map[string]*binding{}, roles: map[string]*rights{},
		mentions: mentions{bound: map[string]bool{}, mentioned: map[string]bool{}}, scoped: newScopedRules(),
	}
	for _, role := range documents.Roles {
		r := newRights(role.Permissions)
		s.roles[fold(role.Name)] = &r
	}
	for i, p := range documents.Policies {
		s.addPolicy(p, i)
	}
	for i, p := range documents.Permissions {
		s.addPermission(p, i)
	}
	sets := map[string]*globs{}
	for _, set := range toolsets {
		sets[fold(set.Name)] = newGlobs(set.Tools)
	}
	for _, b := range bindings {
		s.bind(b, sets)
	}
	return s
}

func (s *Set) addPolicy(p manifest.Policy, order int) {
	one := &policy{Policy: p, systems: s.mention(p.Systems), tasks: names(p.Tasks), blocked: names(p.Blocked), order: order}
	s.scoped.addPolicy(one)
	s.byTask = s.byTask || len(p.Tasks) > 0
	for _, system := range p.Systems {
		s.references = append(s.references, reference{system, aCaller, "the policy " + p.Name})
	}
	for _, tool := range p.Blocked {
		s.references = append(s.references, reference{tool, aTool, "the policy " + p.Name})
		s.blocked[fold(tool.Name)] = append(s.blocked[fold(tool.Name)], one)
	}
}

func (s *Set) addPermission(p manifest.Permission, order int) {
	one := &permission{Permission: p, agents: s.mention(p.Agents), exact: map[string]bool{}, tool: fold(p.Tool.Name), required: folded(p.Required), rule: ruleOf("ToolPermission", p.Reference), order: order}
	s.scoped.addPermission(one)
	s.asks = s.asks || one.wantsApproval()
	s.references = append(s.references, reference{p.Tool, aTool, "the ToolPermission " + p.Name})
	for _, agent := range p.Agents {
		one.exact[exact(agent.Name)] = true
		s.references = append(s.references, reference{agent, aCaller, "the ToolPermission " + p.Name})
	}
	s.required[one.tool] = append(s.required[one.tool], one)
}

func (s *Set) bind(b Binding, toolsets map[string]*globs) {
	one := &binding{Binding: b, hasRoles: len(b.Roles) > 0, speaks: map[string]bool{}, rights: newRights(nil)}
	for _, agent := range b.MaySpeakFor {
		one.speaks[exact(agent)] = true
		s.mentioned[fold(agent)], s.bound[fold(agent)] = true, true
	}
	if len(b.Roles)+len(b.Toolsets) > 0 {
		one.view = fmt.Sprintf("%q %q", slices.Sorted(maps.Keys(names(b.Roles))), slices.Sorted(maps.Keys(names(b.Toolsets))))
	}
	for _, role := range b.Roles {
		if r, ok := s.roles[fold(role.Name)]; ok {
			one.rights.add(*r)
		} else {
			s.unbound = append(s.unbound, role)
		}
	}
	if len(b.Toolsets) > 0 {
		one.toolset = newGlobs(nil)
	}
	for _, set := range b.Toolsets {
		if g, ok := toolsets[fold(set.Name)]; ok {
			one.toolset.add(*g)
		} else {
			s.unbound = append(s.unbound, set)
		}
	}
	of, name := s.byCaller, b.Caller
	if b.Group != "" {
		of, name = s.byGroup, b.Group
	}
	s.mentioned[fold(name)], s.bound[fold(name)] = true, true
	of[exact(name)] = one
}

// mention notes that a rule names callers, groups or agents.
func (s *Set) mention(list []manifest.Reference) map[string]bool {
	all := names(list)
	for name := range all {
		s.mentioned[name] = true
	}
	return all
}

func names(list []manifest.Reference) map[string]bool {
	all := make(map[string]bool, len(list))
	for _, r := range list {
		all[fold(r.Name)] = true
	}
	return all
}

// View returns a text that is the same for callers whom the rules treat alike in lists, whatever their calls
// are a part of.
func (s *Set) View(c Caller) string {
	if s == nil {
		return ""
	}
	who := s.identify(c)
	var view []string
	for _, name := range who.exact {
		if s.scoped.name(fold(name)) {
			view = append(view, strconv.Quote(name))
		}
	}
	for _, b := range who.bindings {
		if b.view != "" {
			view = append(view, b.view)
		}
	}
	slices.Sort(view)
	return strings.Join(slices.Compact(view), ",")
}
