package rules_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3, 8.4: a ToolPermission for a name that only the tool's provider uses may deny and ask, and lets nobody
// call: the provider has chosen the name. So the roles are asked all the same.
func TestT84AToolPermissionForAnOwnNameDoesNotReplaceRoles(t *testing.T) {
	right := []manifest.Right{{Tool: "deploy"}}
	required, asking, denying := permission("deploy", manifest.Allow), permission("deploy", manifest.ApprovalRequired), permission("deploy", manifest.Deny)
	required.Required = right
	all := permission("*", manifest.Allow)
	bindings := []rules.Binding{{Caller: "ann", Roles: refs("deployer")}, {Caller: "bob", Roles: refs("none")}}
	roles := []manifest.Role{{Reference: refs("deployer")[0], Permissions: right}, {Reference: refs("none")[0]}}
	mine := rules.NewTarget([]string{"deploy"}, nil, nil, nil)
	evil := rules.NewTarget([]string{"evil__deploy", "evil"}, []string{"deploy"}, nil, nil)
	for _, c := range []struct {
		name        string
		permissions []manifest.Permission
		target      *rules.Target
		ann, bob    manifest.Verdict
		eve         manifest.Verdict // has no entry, so no roles
	}{
		{"requires, of the tool", []manifest.Permission{required}, mine, manifest.Allow, manifest.Deny, manifest.Deny},
		{"requires, of another", []manifest.Permission{required}, evil, manifest.Deny, manifest.Deny, manifest.Deny},
		{"asks, of the tool", []manifest.Permission{asking}, mine, manifest.ApprovalRequired, manifest.ApprovalRequired, manifest.ApprovalRequired},
		{"asks, of another", []manifest.Permission{asking}, evil, manifest.Deny, manifest.Deny, manifest.ApprovalRequired},
		{"denies, of another", []manifest.Permission{denying}, evil, manifest.Deny, manifest.Deny, manifest.Deny},
		{"one for all tools decides", []manifest.Permission{asking, all}, evil, manifest.ApprovalRequired, manifest.ApprovalRequired, manifest.ApprovalRequired},
		{"one for its provider decides", []manifest.Permission{permission("evil", manifest.Allow)}, evil, manifest.Allow, manifest.Allow, manifest.Allow},
	} {
		set := rules.New(manifest.Rules{Roles: roles, Permissions: c.permissions}, bindings, nil)
		for caller, want := range map[string]manifest.Verdict{"ann": c.ann, "bob": c.bob, "eve": c.eve} {
			who := rules.Caller{Name: caller}
			if d := set.Decide(who, c.target); d.Verdict != want {
				t.Errorf("%s: %s: %+v, want %s", c.name, caller, d, want)
			}
			steps := set.Explain(who, c.target)
			if last := steps[len(steps)-1]; caller == "bob" && want == manifest.Deny && c.target == evil &&
				(last.Verdict != manifest.Deny || !strings.HasPrefix(last.Why, "none of them has")) {
				t.Errorf("%s: %s: nothing explains it: %+v", c.name, caller, steps)
			}
		}
	}
}
