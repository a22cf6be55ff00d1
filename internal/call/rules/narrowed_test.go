package rules_test

import (
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.6: who has roles or toolsets is not to know of other tools, nor is whom a rule that names the caller forbids
// something. A rule for all callers forbids nobody to know of the tools.
func TestT86WhoIsNarrowed(t *testing.T) {
	of := func(names ...string) (list []manifest.Reference) {
		for _, name := range names {
			list = append(list, manifest.Reference{Name: name, At: "a.yaml:1:1"})
		}
		return list
	}
	deny := []manifest.OperationRule{{Class: "*", Verdict: manifest.Deny}}
	ask := []manifest.OperationRule{{Class: "*", Verdict: manifest.ApprovalRequired}}
	required := []manifest.Right{{Tool: "wipe"}}
	for name, c := range map[string]struct {
		documents manifest.Rules
		bindings  []rules.Binding
		want      bool
	}{
		"roles":                    {manifest.Rules{Roles: []manifest.Role{{Reference: of("r")[0]}}}, []rules.Binding{{Caller: "ann", Roles: of("r")}}, true},
		"roles of another":         {manifest.Rules{}, []rules.Binding{{Caller: "bob", Roles: of("r")}}, false},
		"a toolset":                {manifest.Rules{}, []rules.Binding{{Group: "g", Toolsets: of("web")}}, true},
		"a policy":                 {manifest.Rules{Policies: []manifest.Policy{{Systems: of("ANN"), Blocked: of("wipe")}}}, nil, true},
		"a policy for a group":     {manifest.Rules{Policies: []manifest.Policy{{Systems: of("g"), Blocked: of("*")}}}, nil, true},
		"a policy for another":     {manifest.Rules{Policies: []manifest.Policy{{Systems: of("bob"), Blocked: of("wipe")}}}, nil, false},
		"a policy for all":         {manifest.Rules{Policies: []manifest.Policy{{Global: true, Blocked: of("wipe")}}}, nil, false},
		"a denied class":           {manifest.Rules{Permissions: []manifest.Permission{{Scoped: true, Agents: of("ann"), Tool: of("wipe")[0], Operations: deny}}}, nil, true},
		"a required permission":    {manifest.Rules{Permissions: []manifest.Permission{{Scoped: true, Agents: of("ann"), Tool: of("wipe")[0], Required: required}}}, nil, true},
		"an approval":              {manifest.Rules{Permissions: []manifest.Permission{{Scoped: true, Agents: of("ann"), Tool: of("wipe")[0], Operations: ask}}}, nil, false},
		"a denied class of others": {manifest.Rules{Permissions: []manifest.Permission{{Scoped: true, Agents: of("bob"), Tool: of("wipe")[0], Operations: deny}}}, nil, false},
		"a denied class of all":    {manifest.Rules{Permissions: []manifest.Permission{{Tool: of("wipe")[0], Operations: deny}}}, nil, false},
	} {
		set := rules.New(c.documents, c.bindings, []rules.Toolset{{Name: "web", Tools: []string{"search"}}})
		if got := set.Narrowed(rules.Caller{Name: "ann", Groups: []string{"g"}}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
