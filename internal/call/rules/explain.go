package rules

import (
	"fmt"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// Step is what one rule says of a call.
type Step struct {
	Rule    string           `json:"rule" jsonschema:"The rule, and where it stands."`
	Applies bool             `json:"applies" jsonschema:"Whether it is about the call."`
	Verdict manifest.Verdict `json:"verdict,omitempty" jsonschema:"What it says: allow, approval_required or deny."`
	Why     string           `json:"why,omitempty" jsonschema:"What it says, in a sentence."`
}

// Explain returns what each rule that names a target says of a call, in the order of the decision. For a call
// for an agent, the steps of the caller come first.
func (s *Set) Explain(c Caller, t *Target) (steps []Step) {
	if s == nil {
		return []Step{{Rule: "no rules", Applies: true, Verdict: manifest.Allow, Why: "there is neither a governance document nor an entry in callers"}}
	}
	who := s.identify(c)
	steps = s.explain(&who, t, c.Name)
	if c.Agent == "" {
		return steps
	}
	speaks := Step{Rule: "callers, may_speak_for", Applies: true, Verdict: manifest.Allow, Why: c.Name + " may act for " + c.Agent}
	if !who.speaksFor(c.Agent) {
		speaks.Verdict, speaks.Why = manifest.Deny, fmt.Sprintf("no entry of %s in callers lists %s", c.Name, c.Agent)
	}
	agent := s.identify(Caller{Name: c.Agent, Task: c.Task})
	return append(append(steps, speaks), s.explain(&agent, t, c.Agent)...)
}

func (s *Set) explain(who *identity, t *Target, name string) (steps []Step) {
	j := t.judgementOf(s)
	for _, p := range j.policies {
		one := Step{Rule: ruleOf("AgentPolicy", p.Reference)}
		if one.Applies = p.applies(who); one.Applies {
			one.Verdict, one.Why = manifest.Deny, "it blocks "+t.name()
		} else {
			one.Why = "it is not for " + name
		}
		steps = append(steps, one)
	}
	for _, b := range who.bindings {
		if b.toolset == nil {
			continue
		}
		one := Step{Rule: "callers, " + b.At, Applies: true, Verdict: manifest.Allow, Why: t.name() + " is in a toolset of " + name}
		if !t.isOf(b.toolset) {
			one.Verdict, one.Why = manifest.Deny, fmt.Sprintf("%s is in no toolset of %s", t.name(), name)
		}
		steps = append(steps, one)
	}
	decides := false
	for _, p := range j.permissions() {
		one := Step{Rule: ruleOf("ToolPermission", p.Reference), Applies: p.applies(who)}
		if one.Applies {
			d := p.judge(who, t, name)
			one.Verdict, one.Why, decides = d.Verdict, d.Why, decides || p.decides && p.decidesFor(who)
			if one.Why == "" {
				one.Why = name + " has what it requires"
			}
		} else {
			one.Why = "it is not for " + name
		}
		steps = append(steps, one)
	}
	return append(steps, roles(who, t, name, decides))
}

// roles is the step that is about the roles of a caller.
func roles(who *identity, t *Target, name string, ruled bool) Step {
	one := Step{Rule: "the roles of " + name}
	switch {
	case !who.hasRoles:
		one.Why = name + " has no roles"
	case ruled:
		one.Why = "a ToolPermission applies, so that roles alone do not decide"
	case who.has(func(r *rights) bool { return r.covers(t) }):
		one.Applies, one.Verdict, one.Why = true, manifest.Allow, "one of them allows to call "+t.name()
	default:
		one.Applies, one.Verdict = true, manifest.Deny
		one.Why = "none of them has tool:" + t.name() + ":invoke"
		if len(t.capabilities) > 0 {
			one.Why += " or capability:" + strings.Join(t.capabilities, " or capability:")
		}
	}
	return one
}
