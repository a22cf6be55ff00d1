package rules

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/manifest"
)

const (
	// maxIdentities bounds the callers that a Set remembers, and maxGroupsKept the groups of all of them. Beyond that it forgets all.
	maxIdentities, maxGroupsKept = 1024, 64 << 10
	// maxReaders bounds the callers of which a provider's target remembers whether they may read from it.
	maxReaders = 1024
	// few is how many scoped rules are looked at one by one, rather than by the caller.
	few = 8
)

// identity is what the rules know of a caller, and which rules are for it. It is never changed.
type identity struct {
	names    []string // its own, and its groups', as far as a rule names them, folded
	exact    []string // the same with their case
	bindings []*binding
	task     string
	hasRoles bool
	started  bool // it has started Orla, over stdio
	rules    *applicable
}

// applicable are the rules that are for a caller.
type applicable struct {
	policies    []*policy     // scoped
	permissions []*permission // scoped, for one tool each
	all         []ruling      // the ToolPermissions for all tools, as far as they make a difference
}

// caller identifies a Caller: by the names of its groups if they are few, else as long as they are the same slice, since nobody
// changes them.
type caller struct {
	name, task, few string
	many            *string
	n               int
}

// identities are the callers that a Set remembers.
type identities struct {
	mu     sync.RWMutex // guards the fields that follow
	of     map[caller]*identity
	groups int
}

// identify returns what the rules know of a caller. It costs in proportion to its groups and to the rules that are for it, once.
func (s *Set) identify(c Caller) identity {
	key := caller{name: c.Name, n: len(c.Groups)}
	if s.byTask {
		key.task = c.Task
	}
	switch {
	case key.n == 0:
	case key.n <= few:
		key.few = strings.Join(c.Groups, "\x00")
	default:
		key.many = &c.Groups[0]
	}
	known := &s.identities
	known.mu.RLock()
	who := known.of[key]
	known.mu.RUnlock()
	if who != nil {
		return *who
	}
	made := s.newIdentity(c)
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.groups += key.n; known.of == nil || len(known.of) >= maxIdentities || known.groups > maxGroupsKept {
		known.of, known.groups = map[caller]*identity{}, key.n
	}
	if key.n <= maxGroupsKept {
		known.of[key] = &made
	}
	return made
}

func (s *Set) newIdentity(c Caller) (who identity) {
	who.started = c.Name == "stdio"
	if name := fold(c.Name); s.mentioned[name] {
		who.names, who.exact = append(who.names, name), append(who.exact, exact(c.Name))
	}
	if b := s.byCaller[exact(c.Name)]; b != nil {
		who.bindings = append(who.bindings, b)
	}
	named, spelt, bound := map[string]bool{}, map[string]bool{}, map[*binding]bool{}
	for _, group := range c.Groups {
		folded := fold(group)
		if one := exact(group); s.mentioned[folded] && !spelt[one] {
			spelt[one] = true
			who.exact = append(who.exact, one)
		}
		if s.mentioned[folded] && !named[folded] && !slices.Contains(who.names[:min(len(who.names), 1)], folded) {
			named[folded] = true
			who.names = append(who.names, folded)
		}
		if b := s.byGroup[exact(group)]; b != nil && !bound[b] {
			bound[b] = true
			who.bindings = append(who.bindings, b)
		}
	}
	for _, b := range who.bindings {
		who.hasRoles = who.hasRoles || b.hasRoles
	}
	if s.byTask && c.Task != "" {
		who.task = fold(c.Task)
	}
	who.rules = s.rulesFor(&who)
	return who
}

// rulesFor finds the rules that are for a caller, in the order in which they stand.
func (s *Set) rulesFor(who *identity) *applicable {
	a := &applicable{}
	for _, name := range who.names {
		a.policies = append(a.policies, s.scoped.policies[name]...)
		a.permissions = append(a.permissions, s.scoped.permissions[name]...)
	}
	if who.task != "" {
		a.policies = append(a.policies, s.scoped.byTask[who.task]...)
	}
	a.policies = inOrder(a.policies, func(p *policy) int { return p.order })
	a.permissions = inOrder(a.permissions, func(p *permission) int { return p.order })
	all := slices.Clone(s.scoped.global)
	for _, p := range a.permissions {
		if p.tool == "*" {
			all = append(all, p)
		}
	}
	a.permissions = slices.DeleteFunc(a.permissions, func(p *permission) bool { return p.tool == "*" })
	decided := false // by one of them, in place of roles
	for _, p := range inOrder(all, func(p *permission) int { return p.order }) {
		decides := p.decidesFor(who)
		if len(a.all) > 0 && (decided || !decides) && len(p.Operations) == 0 && p.isMet(who) {
			continue // it allows every call, as another one does
		}
		decided = decided || decides
		a.all = append(a.all, ruling{p, true})
	}
	return a
}

// inOrder brings rules in order, and leaves each once.
func inOrder[T comparable](list []T, order func(T) int) []T {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(order(a), order(b)) })
	return slices.Compact(list)
}

// isMet reports whether a caller has what is required, whatever the target is called.
func (p *permission) isMet(who *identity) bool {
	_, lacks := p.missing(who, &Target{NameList: &NameList{}})
	return !lacks
}

// is reports whether one of some names is the caller's.
func (who *identity) is(among map[string]bool) bool {
	return slices.ContainsFunc(who.names, func(name string) bool { return among[name] })
}

// has reports whether the caller has one of the rights that test finds.
func (who *identity) has(test func(*rights) bool) bool {
	return slices.ContainsFunc(who.bindings, func(b *binding) bool { return test(&b.rights) })
}

// speaksFor reports whether the caller may act for an agent.
func (who *identity) speaksFor(agent string) bool {
	return slices.ContainsFunc(who.bindings, func(b *binding) bool { return b.speaks[exact(agent)] })
}

// blockedBy returns the first policy for a caller that blocks a target; nil if there is none.
func (who *identity) blockedBy(j *judgement, t *Target) *policy {
	switch {
	case j.global != nil:
		return j.global
	case len(j.policies) <= max(few, len(who.rules.policies)):
		if i := slices.IndexFunc(j.policies, func(p *policy) bool { return p.applies(who) }); i >= 0 {
			return j.policies[i]
		}
		return nil
	}
	blocks := func(p *policy) bool { return anyOf(p.blocked, t.ruled) }
	if i := slices.IndexFunc(who.rules.policies, blocks); i >= 0 {
		return who.rules.policies[i]
	}
	return nil
}

// permissionsFor calls each with the scoped ToolPermissions for a caller that name a target, until it wants no more.
func (who *identity) permissionsFor(j *judgement, t *Target, each func(ruling) (more bool)) {
	if len(j.scoped) <= max(few, len(who.rules.permissions)) {
		for _, p := range j.scoped {
			if p.applies(who) && !each(p) {
				return
			}
		}
		return
	}
	for _, p := range who.rules.permissions {
		if slices.Contains(t.ruled, p.tool) && !each(ruling{p, t.isCalled(p.tool)}) {
			return
		}
	}
}

// scopedRules are rules by who they are for, and those for all tools and callers.
type scopedRules struct {
	policies    map[string][]*policy     // by the folded name of a caller or a group
	byTask      map[string][]*policy     // by the folded name
	permissions map[string][]*permission // by the folded name of a caller or a group
	global      []*permission            // for all tools and callers
}

func newScopedRules() scopedRules {
	return scopedRules{map[string][]*policy{}, map[string][]*policy{}, map[string][]*permission{}, nil}
}

func (s *scopedRules) addPolicy(p *policy) {
	if p.Global {
		return
	}
	for name := range p.systems {
		s.policies[name] = append(s.policies[name], p)
	}
	for task := range p.tasks {
		s.byTask[task] = append(s.byTask[task], p)
	}
}

func (s *scopedRules) addPermission(p *permission) {
	if !p.Scoped {
		if p.tool == "*" {
			s.global = append(s.global, p)
		}
		return
	}
	for name := range p.agents {
		s.permissions[name] = append(s.permissions[name], p)
	}
}

// name reports whether a rule is for a caller or a group of a folded name.
func (s *scopedRules) name(folded string) bool {
	return len(s.policies[folded])+len(s.permissions[folded]) > 0
}

// folded returns rights with folded names.
func folded(list []manifest.Right) []manifest.Right {
	list = slices.Clone(list)
	for i := range list {
		list[i].Tool, list[i].Capability = fold(list[i].Tool), fold(list[i].Capability)
	}
	return list
}

// readers are a caller, and the agent that it acts for; nil for none.
type readers struct{ caller, agent *applicable }

// reads is what a provider's target remembers of callers.
type reads struct {
	mu sync.Mutex // guards of
	of map[readers]Decision
}

// by returns what decide says of a caller, which it is asked once.
func (r *reads) by(who readers, decide func() Decision) Decision {
	r.mu.Lock()
	d, known := r.of[who]
	r.mu.Unlock()
	if known {
		return d
	}
	d = decide()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= maxReaders {
		r.of = map[readers]Decision{}
	}
	r.of[who] = d
	return d
}
