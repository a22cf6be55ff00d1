package rules_test

import (
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3: over every combination of the class of a call, the operation rule, the role of the caller, the
// policy, and the scope, the match mode and the requirements of the ToolPermission, the decision is that of the model.
func TestT83EveryCombination(t *testing.T) {
	type named[T any] struct {
		name string
		is   T
	}
	classes := [][]string{{"read"}, {"write"}, {"delete"}, {"admin"}, {"read", "delete"}, nil}
	operations := [][]manifest.OperationRule{nil}
	for _, class := range []manifest.OperationClass{"read", "write", "delete", "admin", "*"} {
		for _, verdict := range []manifest.Verdict{manifest.Allow, manifest.ApprovalRequired, manifest.Deny} {
			operations = append(operations, []manifest.OperationRule{{Class: class, Verdict: verdict}})
		}
	}
	roles := []named[*[]manifest.Right]{
		{"no entry", nil},
		{"no permission", &[]manifest.Right{}},
		{"the tool", &[]manifest.Right{{Tool: "fetch"}}},
		{"another tool", &[]manifest.Right{{Tool: "write"}}},
		{"its capability", &[]manifest.Right{{Capability: "web.read"}}},
		{"all tools", &[]manifest.Right{{Tool: "*"}}},
	}
	policies := []named[*manifest.Policy]{
		{"none", nil},
		{"global", &manifest.Policy{Global: true, Blocked: refs("fetch")}},
		{"of another tool", &manifest.Policy{Global: true, Blocked: refs("write")}},
		{"for the caller", &manifest.Policy{Systems: refs("ann"), Blocked: refs("fetch")}},
		{"for its group", &manifest.Policy{Systems: refs("staff"), Blocked: refs("*")}},
		{"for another caller", &manifest.Policy{Systems: refs("bob"), Blocked: refs("fetch")}},
		{"for the task", &manifest.Policy{Tasks: refs("report"), Blocked: refs("fetch")}},
	}
	scopes := []named[manifest.Permission]{
		{"of another tool", manifest.Permission{Tool: refs("write")[0]}},
		{"global", manifest.Permission{Tool: refs("fetch")[0]}},
		{"for the caller", manifest.Permission{Tool: refs("fetch")[0], Scoped: true, Agents: refs("ann")}},
		{"for its group", manifest.Permission{Tool: refs("*")[0], Scoped: true, Agents: refs("staff")}},
		{"for another caller", manifest.Permission{Tool: refs("fetch")[0], Scoped: true, Agents: refs("bob")}},
	}
	required := [][]manifest.Right{nil, {{Tool: "fetch"}}, {{Capability: "db"}}, {{Tool: "fetch"}, {Capability: "db"}}}

	caller := rules.Caller{Name: "ann", Groups: []string{"staff"}, Task: "report"}
	who := []string{"ann", "staff"}
	n, verdicts := 0, map[string]int{}
	for _, role := range roles {
		var bindings []rules.Binding
		m := model{roles: map[string][]string{}}
		if role.is != nil {
			m.documents.Roles = []manifest.Role{{Reference: refs("r")[0], Permissions: *role.is}}
			m.roles["ann"] = []string{"r"}
			bindings = []rules.Binding{{Caller: "ann", Roles: refs("r")}}
		}
		for _, policy := range policies {
			m.documents.Policies = nil
			if policy.is != nil {
				m.documents.Policies = []manifest.Policy{*policy.is}
			}
			for _, scope := range scopes {
				for _, matchAny := range []bool{false, true} {
					for _, requires := range required {
						for _, operation := range operations {
							p := scope.is
							p.Reference, p.Any, p.Required, p.Operations = refs("p")[0], matchAny, requires, operation
							m.documents.Permissions = []manifest.Permission{p}
							set := rules.New(m.documents, bindings, nil)
							for _, of := range classes {
								n++
								var does []manifest.OperationClass
								for _, class := range of {
									does = append(does, manifest.OperationClass(class))
								}
								want := m.decide(who, caller.Task, "fetch", of, []string{"web.read"})
								verdicts[want]++
								target := rules.NewTarget([]string{"fetch"}, nil, does, []string{"web.read"})
								if got := set.Decide(caller, target); string(got.Verdict) != want {
									t.Fatalf("classes %v, rule %v, role %s, policy %s, scope %s, any %t, requires %v: %+v, want %s",
										of, operation, role.name, policy.name, scope.name, matchAny, requires, got, want)
								}
							}
						}
					}
				}
			}
		}
	}
	if n < 10_000 {
		t.Errorf("%d combinations", n)
	}
	for _, verdict := range []string{"allow", "approval_required", "deny"} {
		if verdicts[verdict] < n/100 {
			t.Errorf("%s: %d of %d decisions", verdict, verdicts[verdict], n)
		}
	}
	t.Logf("%d combinations: %v", n, verdicts)
}
