package rules_test

import (
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3, 8.4: a ToolPermission for a caller forbids what callers do whose names differ from it in their case, and lets none
// of them call what it lets this one call. So it is with groups.
func TestT84AToolPermissionGivesNothingToANameInAnotherCase(t *testing.T) {
	roles := []manifest.Role{{Reference: refs("none")[0]}}
	target := rules.NewTarget([]string{"deploy"}, nil, nil, nil)
	for _, tool := range []string{"deploy", "*"} {
		for verdict, others := range map[manifest.Verdict]manifest.Verdict{manifest.Allow: manifest.Deny, manifest.ApprovalRequired: manifest.Deny, manifest.Deny: manifest.Deny} {
			scoped := permission(tool, verdict)
			scoped.Scoped, scoped.Agents = true, refs("Ann")
			// One that is for all tools and allows everything stands before it, and is for nobody as it is written.
			first := permission("*", manifest.Allow)
			first.Scoped, first.Agents, first.Operations = true, refs("ANN"), nil
			last := first
			last.Agents = refs("aNN")
			set := rules.New(manifest.Rules{Roles: roles, Permissions: []manifest.Permission{first, scoped}},
				[]rules.Binding{{Caller: "ann", Roles: refs("none")}, {Caller: "Ann", Roles: refs("none")}, {Group: "staff", Roles: refs("none")}}, nil)
			views := map[string]manifest.Verdict{}
			for _, c := range []struct {
				who  rules.Caller
				want manifest.Verdict
			}{
				{rules.Caller{Name: "Ann"}, verdict},
				{rules.Caller{Name: "ann"}, others},
				{rules.Caller{Name: "aNn", Groups: []string{"staff"}}, others},
				{rules.Caller{Name: "x", Groups: []string{"staff", "Ann"}}, verdict},
				{rules.Caller{Name: "x", Groups: []string{"staff", "ann"}}, others},
				{rules.Caller{Name: "ann", Groups: []string{"Ann"}}, verdict},
			} {
				if d := set.Decide(c.who, target); d.Verdict != c.want {
					t.Errorf("%s, %s: %+v: %s, want %s", tool, verdict, c.who, d.Verdict, c.want)
				}
				if steps := set.Explain(c.who, target); c.want == manifest.Deny && verdict != manifest.Deny && steps[len(steps)-1].Verdict != manifest.Deny {
					t.Errorf("%s, %s: %+v: %+v", tool, verdict, c.who, steps)
				}
				if other, known := views[set.View(c.who)]; known && other != c.want {
					t.Errorf("%s, %s: %+v has the lists of a caller with %s", tool, verdict, c.who, other)
				}
				views[set.View(c.who)] = c.want
			}
			if d := rules.New(manifest.Rules{Roles: roles, Permissions: []manifest.Permission{scoped, last}}, []rules.Binding{{Caller: "aNN", Roles: refs("none")}}, nil).
				Decide(rules.Caller{Name: "aNN"}, target); d.Verdict != verdict {
				t.Errorf("%s, %s: a rule after another: %s", tool, verdict, d.Verdict)
			}
		}
	}
}
