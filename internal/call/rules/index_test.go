package rules_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3: a decision, for which rules are found by whom they are for, is that of all rules, looked at one by one: many
// rules for one tool and for all tools, by callers, groups and tasks.
func TestT83ManyRulesDecideAsEachDoes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func(of string, n int) []manifest.Reference { return refs(fmt.Sprint(of, r.IntN(n))) }
	tools := []string{"*", "tool0", "TOOL0", "tool1", "own", "other"}
	verdicts := map[manifest.Verdict]int{}
	for range 400 {
		var docs manifest.Rules
		rare := func() bool { return r.IntN(40) == 0 }
		for i := range 40 {
			p := manifest.Policy{Reference: refs(fmt.Sprint("p", i))[0], Global: r.IntN(1600) == 0, Blocked: refs(tools[1+r.IntN(len(tools)-1)])}
			if rare() {
				p.Blocked = refs("*")
			}
			switch r.IntN(3) {
			case 0:
				p.Tasks = some("task", 30)
			default:
				p.Systems = some("c", 60)
			}
			docs.Policies = append(docs.Policies, p)
		}
		for i := range 60 {
			p := manifest.Permission{Reference: refs(fmt.Sprint("t", i))[0], Tool: refs(tools[r.IntN(len(tools))])[0], Scoped: r.IntN(4) > 0, Any: r.IntN(2) == 0}
			if p.Scoped {
				p.Agents = append(some("c", 30), some("c", 30)...)
			}
			if r.IntN(10) == 0 {
				p.Required = []manifest.Right{{Tool: fmt.Sprint("tool", r.IntN(2))}, {Capability: fmt.Sprint("cap", r.IntN(2))}}
			}
			if r.IntN(15) == 0 {
				p.Operations = []manifest.OperationRule{{Class: "read", Verdict: manifest.ApprovalRequired}}
			}
			docs.Permissions = append(docs.Permissions, p)
		}
		docs.Roles = []manifest.Role{{Reference: refs("r0")[0], Permissions: []manifest.Right{{Tool: "tool0"}, {Capability: "cap0"}}}, {Reference: refs("r1")[0], Permissions: []manifest.Right{{Tool: "*"}, {Capability: "cap1"}}}}
		bindings := []rules.Binding{{Caller: "c0", Roles: refs("r0")}, {Group: "c1", Roles: refs("r1")}, {Group: "c2", Toolsets: refs("web")}}
		set := rules.New(docs, bindings, []rules.Toolset{{Name: "web", Tools: []string{"tool*"}}})
		var groups []string
		for i := range 12 {
			groups = append(groups, fmt.Sprint("c", i+r.IntN(60)))
		}
		targets := []*rules.Target{
			rules.NewTarget([]string{"tool0", "tool1"}, []string{"own"}, []manifest.OperationClass{"read"}, []string{"cap0"}),
			rules.NewTarget([]string{"tool1"}, []string{"own"}, []manifest.OperationClass{"write"}, nil),
			rules.NewTarget([]string{"other"}, nil, []manifest.OperationClass{"read"}, nil),
		}
		for _, c := range []rules.Caller{{Name: "c0"}, {Name: "c3", Task: "task1"}, {Name: "c4", Groups: groups[:2]}, {Name: "c5", Groups: groups, Task: "task2"}, {Name: "C6", Groups: groups}} {
			for _, target := range targets {
				for range 2 { // it is remembered then
					want := strictest(set.Explain(c, target))
					got := set.Decide(c, target).Verdict
					verdicts[got]++
					if got != want {
						t.Fatalf("%+v, %s: %s, and one by one %s\n%+v", c, target.Name(), got, want, set.Explain(c, target))
					}
				}
			}
		}
	}
	for _, v := range []manifest.Verdict{manifest.Allow, manifest.ApprovalRequired, manifest.Deny} {
		if verdicts[v] < 200 {
			t.Errorf("only %d decisions are %s", verdicts[v], v)
		}
	}
}

// strictest is what steps say together.
func strictest(steps []rules.Step) manifest.Verdict {
	said := manifest.Allow
	for _, s := range steps {
		if s.Applies && (s.Verdict == manifest.Deny || s.Verdict == manifest.ApprovalRequired && said == manifest.Allow) {
			said = s.Verdict
		}
	}
	return said
}
