package oneshot

import (
	"cmp"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// Permission is what the rules say of calls of a tool by a caller.
type Permission struct {
	Caller   string             `json:"caller"`
	Groups   []string           `json:"groups,omitempty"`
	Agent    string             `json:"agent,omitempty"`
	Task     string             `json:"task,omitempty"`
	Tool     string             `json:"tool"`
	Classes  []string           `json:"classes"`
	Verdict  manifest.Verdict   `json:"verdict"`
	Rule     string             `json:"rule,omitempty"`
	Why      string             `json:"why,omitempty"`
	Steps    []rules.Step       `json:"steps"`
	Problems []manifest.Problem `json:"-"` // documents because of which every call is denied, or may be
}

// Can says what the rules of a configuration and of its folders say of a call, without starting anything.
// Which tools a capsule has is known from when it last ran. The error of a tool that does not exist is a
// NoToolError.
func Can(cfg *config.Loaded, home string, caller rules.Caller, tool string) (Permission, error) {
	found := discovery.Find(cfg, home)
	p, err := wiring.Unstarted(cfg, &found)
	if err != nil {
		return Permission{}, &exit.Error{Code: exit.Failed, Err: err}
	}
	defer p.Close()
	c := p.Supervisor.Catalog()
	target := c.Target(tool)
	if target == nil {
		return Permission{}, &NoToolError{Found: found, Listed: peer.NamesOf(c.Tools)}
	}
	set := p.Governance.Readable()
	d := set.Decide(caller, target)
	var classes []string
	for _, class := range target.Classes() {
		classes = append(classes, string(class))
	}
	said := Permission{
		Caller: caller.Name, Groups: caller.Groups, Agent: caller.Agent, Task: caller.Task, Tool: tool,
		Classes: classes, Verdict: d.Verdict, Rule: d.Rule, Why: d.Why, Steps: set.Explain(caller, target),
	}
	if held := fault.From(c.Withheld(tool)); held != nil { // whatever the rules say
		why := strings.TrimPrefix(held.Reason, "tool_permission_denied: ")
		said.Steps = append(said.Steps, rules.Step{Rule: "pin", Applies: true, Verdict: manifest.Deny, Why: why})
		if d.Verdict != manifest.Deny {
			said.Verdict, said.Rule, said.Why = manifest.Deny, "pin", why
		}
	}
	unnamed := p.Governance.Unnamed(c, &found)
	if c.Told() {
		found.Problems = append(found.Problems, unnamed...)
	}
	if said.Problems = slices.DeleteFunc(found.Problems, func(p manifest.Problem) bool { return !p.Denies }); len(said.Problems) == 0 {
		said.Problems = wiring.Doubts(unnamed)
	} else {
		said.Verdict, said.Rule = manifest.Deny, cmp.Or(said.Problems[0].Path, said.Rule)
		said.Why = "every call is denied, since a governance document cannot be read or names nothing"
	}
	return said, nil
}
