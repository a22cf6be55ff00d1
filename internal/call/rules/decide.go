package rules

import (
	"fmt"
	"slices"

	"github.com/orla-project/orla/manifest"
)

var (
	allowed = Decision{Verdict: manifest.Allow}
	closed  = Decision{Verdict: manifest.Deny, Why: "every call is denied"}
)

// Closed is a Set that denies everything: a rule that cannot be read may be about any caller and any tool (SPEC-TOOLS
// 8.3). before is what held last, if that is known.
func Closed(before *Set, known bool) *Set {
	return &Set{shut: shut{true, before, !known}}
}

// Decide says what the rules say of a call: the strictest verdict that a rule has (SPEC-TOOLS 8.3). If the
// caller acts for an agent, both are judged.
func (s *Set) Decide(c Caller, t *Target) Decision {
	switch {
	case s == nil:
		return allowed
	case s.closed:
		return closed
	}
	who := s.identify(c)
	d := s.judge(&who, t, c.Name)
	if c.Agent == "" || d.Verdict == manifest.Deny {
		return d
	}
	if !who.speaksFor(c.Agent) {
		return c.mayNotSpeak()
	}
	agent := s.agentOf(c, &who)
	return stricter(d, s.judge(&agent, t, c.Agent))
}

// mayNotSpeak is what the rules say if a caller may not act for the agent.
func (c *Caller) mayNotSpeak() Decision {
	return Decision{Verdict: manifest.Deny, Why: fmt.Sprintf("%s may not act for the agent %s: no entry in callers lists it in may_speak_for", c.Name, c.Agent)}
}

// agentOf is the agent that a caller acts for.
func (s *Set) agentOf(c Caller, who *identity) identity {
	agent := s.identify(Caller{Name: c.Agent, Task: c.Task})
	agent.started = who.started
	return agent
}

// DecideRequest says whether a caller may read from a capsule or a server, or get a prompt of it: what a rule
// denies by the provider's own name it may not, and otherwise it needs to be allowed to call one of its tools,
// if it has any (SPEC-TOOLS 8.6). An agent that the caller acts for is judged as well.
func (s *Set) DecideRequest(c Caller, t *Target) Decision {
	switch {
	case s == nil:
		return allowed
	case s.closed:
		return closed
	}
	who := s.identify(c)
	own, _ := s.named(&who, t, c.Name)
	by := readers{caller: who.rules}
	if c.Agent != "" && own.Verdict != manifest.Deny {
		if !who.speaksFor(c.Agent) { // before anything is remembered of the agent, or the tools are looked at (SPEC S2)
			return c.mayNotSpeak()
		}
		agent := s.agentOf(c, &who)
		by.agent = agent.rules
		own, _ = s.named(&agent, t, c.Agent)
	}
	if own.Verdict == manifest.Deny {
		return own
	}
	if len(t.Members) == 0 {
		return s.Decide(c, t)
	}
	return t.reads.by(by, func() Decision { return s.anyMember(c, t) })
}

// anyMember allows what a caller may do if it may call one of the tools of a provider.
func (s *Set) anyMember(c Caller, t *Target) (d Decision) {
	for _, tool := range t.Members {
		if d = s.Decide(c, tool); d.Verdict != manifest.Deny {
			return allowed
		}
	}
	return d
}

// Asks reports whether any call may need an approval.
func (s *Set) Asks() bool { return s != nil && s.asks }

// AsksAbout reports whether a call of a target may need an approval.
func (s *Set) AsksAbout(t *Target) bool {
	return s.Asks() && t != nil && slices.ContainsFunc(t.judgementOf(s).permissions(), func(p ruling) bool { return p.wantsApproval() })
}

// wantsApproval reports whether a ToolPermission wants approvals.
func (p *permission) wantsApproval() bool {
	return slices.ContainsFunc(p.Operations, func(r manifest.OperationRule) bool { return r.Verdict == manifest.ApprovalRequired })
}

// Calls reports whether a caller sees a tool in lists: whether it may call it, or may if somebody approves.
func (s *Set) Calls(c Caller, t *Target) bool { return s.Decide(c, t).Verdict != manifest.Deny }

// Reads reports whether a caller may read from a provider.
func (s *Set) Reads(c Caller, t *Target) bool {
	return s.DecideRequest(c, t).Verdict != manifest.Deny
}

// Narrowed reports whether the operator has given a caller roles or toolsets, or a rule that names the caller forbids it
// something, so that it is not to know of other tools. A rule for all callers does not count: nobody could know of all tools then.
// While everything is denied, it says what it said last.
func (s *Set) Narrowed(c Caller) bool {
	switch {
	case s == nil:
		return false
	case s.closed:
		return s.narrow || s.before.Narrowed(c)
	}
	who := s.identify(c)
	if who.hasRoles || slices.ContainsFunc(who.bindings, func(b *binding) bool { return b.toolset != nil }) {
		return true
	}
	for _, list := range s.blocked {
		if slices.ContainsFunc(list, func(p *policy) bool { return !p.Global && p.applies(&who) }) {
			return true
		}
	}
	for _, list := range s.required {
		if slices.ContainsFunc(list, func(p *permission) bool { return p.Scoped && p.forbids() && p.applies(&who) }) {
			return true
		}
	}
	return false
}

// forbids reports whether a ToolPermission can deny a call.
func (p *permission) forbids() bool {
	return len(p.Required) > 0 || slices.ContainsFunc(p.Operations, func(r manifest.OperationRule) bool { return r.Verdict == manifest.Deny })
}

// judge is Decide for one identity.
func (s *Set) judge(who *identity, t *Target, name string) Decision {
	d, decides := s.named(who, t, name)
	if d.Verdict == manifest.Deny {
		return d
	}
	for _, b := range who.bindings {
		if b.toolset != nil && !t.isOf(b.toolset) {
			return Decision{Verdict: manifest.Deny, Rule: "callers, " + b.At, Why: fmt.Sprintf("%s is in no toolset of %s", t.name(), name)}
		}
	}
	if !decides && who.hasRoles && !who.has(func(r *rights) bool { return r.covers(t) }) {
		return Decision{Verdict: manifest.Deny, Why: fmt.Sprintf("no role of %s has tool:%s:invoke or a capability of the tool", name, t.name())}
	}
	return d
}

// named says what the rules say that name the target, or all tools. The Rule of an allowed call is that of a
// ToolPermission that applies, if there is one. decides reports that one applies that decides in place of roles.
func (s *Set) named(who *identity, t *Target, name string) (d Decision, decides bool) {
	j := t.judgementOf(s)
	if p := who.blockedBy(j, t); p != nil {
		return Decision{Verdict: manifest.Deny, Rule: ruleOf("AgentPolicy", p.Reference), Why: fmt.Sprintf("the policy %s blocks %s", p.Name, t.name())}, false
	}
	d = allowed
	each := func(p ruling) (more bool) {
		one := p.judge(who, t, name)
		if one.Rule == "" {
			one.Rule = p.rule
		}
		decides = decides || p.decides && p.decidesFor(who)
		d = stricter(d, one)
		return d.Verdict != manifest.Deny
	}
	for _, list := range [][]ruling{who.rules.all, j.always} {
		for _, p := range list {
			if !each(p) {
				return d, decides
			}
		}
	}
	who.permissionsFor(j, t, each)
	return d, decides
}

// applies reports whether the policy is for calls of a caller.
func (p *policy) applies(who *identity) bool {
	return p.Global || who.is(p.systems) || who.task != "" && p.tasks[who.task]
}

// applies reports whether the ToolPermission is for a caller.
func (p *permission) applies(who *identity) bool { return !p.Scoped || who.is(p.agents) }

// decidesFor reports whether the ToolPermission, which is for a caller, decides in place of the caller's roles. Two callers may have
// names that differ in their case alone, and it gives to none of them what is for the other.
func (p *permission) decidesFor(who *identity) bool {
	return !p.Scoped || slices.ContainsFunc(who.exact, func(name string) bool { return p.exact[name] })
}

// judge says what a ToolPermission that applies says of a call.
func (p *permission) judge(who *identity, t *Target, name string) Decision {
	if missing, ok := p.missing(who, t); ok {
		return Decision{Verdict: manifest.Deny, Why: fmt.Sprintf("%s lacks %s, which the ToolPermission %s requires", name, missing, p.Name)}
	}
	d := allowed
	for _, rule := range p.Operations {
		if rule.Class != "*" && !slices.Contains(t.classes, rule.Class) {
			continue
		}
		one := Decision{Verdict: rule.Verdict, Class: rule.Class, Approvers: rule.Approvers}
		if rule.Verdict != manifest.Allow {
			one.Why = fmt.Sprintf("the ToolPermission %s says %s for the class %s", p.Name, rule.Verdict, rule.Class)
		}
		if rule.Verdict == manifest.ApprovalRequired && len(rule.Approvers) == 0 {
			one.Approvers = usual(who, t)
		}
		d = stricter(d, one)
	}
	return d
}

// missing names what the caller lacks of what is required.
func (p *permission) missing(who *identity, t *Target) (what string, lacks bool) {
	for i, right := range p.required {
		has := who.has(func(r *rights) bool { return r.grants(right, t) })
		switch {
		case has && p.Any:
			return "", false
		case !has && !p.Any:
			return p.Required[i].String(), true
		}
	}
	if p.Any && len(p.Required) > 0 {
		return "any of the permissions", true
	}
	return "", false
}

func ruleOf(kind string, r manifest.Reference) string { return kind + " " + r.Name + ", " + r.At }

// severity is how strict a verdict is.
func severity(v manifest.Verdict) int {
	switch v {
	case manifest.Deny:
		return 2
	case manifest.ApprovalRequired:
		return 1
	case manifest.Allow:
	}
	return 0
}

// stricter returns the stricter of two decisions, and the first of two that are equal. That a ToolPermission
// applies is not forgotten. Of two that ask for approval, only who may decide for both may.
func stricter(a, b Decision) Decision {
	switch {
	case severity(b.Verdict) > severity(a.Verdict):
		return b
	case a.Verdict == manifest.ApprovalRequired && b.Verdict == manifest.ApprovalRequired:
		a.Approvers = common(a.Approvers, b.Approvers)
	case a.Rule == "" && a.Verdict == b.Verdict:
		a.Rule = b.Rule
	}
	return a
}

// usual returns who may decide about a call where the rule does not say it: the client only where it has started Orla,
// and not about what deletes or administers (SPEC-TOOLS 8.7).
func usual(who *identity, t *Target) []manifest.Approver {
	all := []manifest.Approver{manifest.ApproverOperator}
	severe := func(c manifest.OperationClass) bool { return c == manifest.ClassDelete || c == manifest.ClassAdmin }
	if who.started && !slices.ContainsFunc(t.classes, severe) {
		all = append(all, manifest.ApproverClient)
	}
	return all
}

// common returns who may decide where each of two rules says who may. If nobody is named by both, it takes a passkey:
// that is good for most, and a program has none.
func common(a, b []manifest.Approver) (both []manifest.Approver) {
	for _, how := range []manifest.Approver{manifest.ApproverOperator, manifest.ApproverClient, manifest.ApproverPasskey} {
		if how.In(a) && how.In(b) && !how.In(both) {
			both = append(both, how)
		}
	}
	if len(both) == 0 {
		return []manifest.Approver{manifest.ApproverPasskey}
	}
	return both
}
