package daemon

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/call/rules"
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
	p, err := unstarted(cfg, &found)
	if err != nil {
		return Permission{}, &exit.Error{Code: exit.Failed, Err: err}
	}
	defer p.Close()
	c := p.Supervisor.Catalog()
	target := c.Target(tool)
	if target == nil {
		return Permission{}, &NoToolError{Found: found, Listed: namesOf(c.Tools)}
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
	unnamed := p.Governance.Unnamed(c, &found)
	if c.Told() {
		found.Problems = append(found.Problems, unnamed...)
	}
	if said.Problems = slices.DeleteFunc(found.Problems, func(p manifest.Problem) bool { return !p.Denies }); len(said.Problems) == 0 {
		said.Problems = doubts(unnamed)
	} else {
		said.Verdict, said.Rule = manifest.Deny, cmp.Or(said.Problems[0].Path, said.Rule)
		said.Why = "every call is denied, since a governance document cannot be read or names nothing"
	}
	return said, nil
}

// unstarted joins the parts with what was found, and starts nothing. It adds a problem for each place that has lost its rules.
func unstarted(cfg *config.Loaded, found *manifest.Result) (*wiring.Parts, error) {
	quiet := *cfg
	quiet.AuditLog = "" // nothing is called
	p, err := wiring.Join(&quiet, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	p.Governance.Partial = true
	p.Pins.Freeze()
	p.Governance.Set(found, cfg)
	p.Services.Declare(*found)
	p.Supervisor.KnowOthers(nil, found.Faulty())
	p.Supervisor.Apply(found.Tools)
	return p, nil
}

// AddDenials adds a problem for each place because of which a running Orla denies every call, and for each rule because of which it
// may: that names no tool that is known without running the capsules.
func AddDenials(cfg *config.Loaded, found *manifest.Result) {
	p, err := unstarted(cfg, found)
	if err != nil { // orla serve says it, and calls nothing
		return
	}
	defer p.Close()
	found.Problems = append(found.Problems, doubts(p.Governance.Unnamed(p.Supervisor.Catalog(), found))...)
}

// doubts makes warnings of rules that name nothing, as far as the capsules said what they have when they last ran.
func doubts(unnamed []manifest.Problem) []manifest.Problem {
	for i := range unnamed {
		p := &unnamed[i]
		p.Severity, p.Denies = manifest.Warning, false
		p.Err = fmt.Errorf("%w; unless a capsule offers it when it runs, every call is denied", p.Err)
	}
	return unnamed
}
