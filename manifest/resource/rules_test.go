package resource

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/manifest"
)

func rulesIn(t *testing.T, text string) (all manifest.Rules, faults []string) {
	t.Helper()
	list, _, err := Parse(File{Display: "a.yaml"}, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		all = all.With(d.Rules)
		if err := d.Doc.Err(); err != nil {
			faults = append(faults, err.Error())
			if !d.Rule || !d.Rules.Empty() {
				t.Errorf("a faulty document does not deny: %v", err)
			}
		}
	}
	return all, faults
}

// SPEC-TOOLS 8.2: governance documents are read with their defaults. The first three are the examples of
// Orloj, as they are.
func TestT82RulesAreRead(t *testing.T) {
	got, faults := rulesIn(t, `apiVersion: orloj.dev/v1
kind: AgentPolicy
metadata:
  name: cost-policy
spec:
  apply_mode: scoped
  target_systems:
    - report-system
  max_tokens_per_run: 50000
  allowed_models:
    - gpt-4o
  blocked_tools:
    - filesystem_delete
---
apiVersion: orloj.dev/v1
kind: AgentRole
metadata:
  name: analyst-role
spec:
  description: Can call web search style tools.
  permissions:
    - tool:web_search:invoke
    - capability:web.read
    - " Tool:WEB_SEARCH:invoke "
    - tool:*:*
---
apiVersion: orloj.dev/v1
kind: ToolPermission
metadata:
  name: web-search-invoke
spec:
  tool_ref: web_search
  action: invoke
  match_mode: all
  apply_mode: global
  required_permissions:
    - tool:web_search:invoke
    - capability:web.read
---
apiVersion: orloj.dev/v1
kind: ToolPermission
metadata: {name: deploy}
spec:
  match_mode: any
  apply_mode: scoped
  target_agents: [ci, CI]
  operation_rules:
    - {}
    - {operation_class: delete, verdict: approval_required, approvers: [operator, passkey]}
`)
	if faults != nil {
		t.Fatal(faults)
	}
	want := manifest.Rules{
		Roles: []manifest.Role{{
			Reference:   manifest.Reference{Name: "analyst-role", At: "a.yaml:18:9"},
			Permissions: []manifest.Right{{Tool: "web_search"}, {Capability: "web.read"}, {Tool: "*"}},
		}},
		Policies: []manifest.Policy{{
			Reference: manifest.Reference{Name: "cost-policy", At: "a.yaml:4:9"},
			Systems:   []manifest.Reference{{Name: "report-system", At: "a.yaml:8:7"}},
			Blocked:   []manifest.Reference{{Name: "filesystem_delete", At: "a.yaml:13:7"}},
		}},
		Permissions: []manifest.Permission{{
			Reference: manifest.Reference{Name: "web-search-invoke", At: "a.yaml:30:9"},
			Tool:      manifest.Reference{Name: "web_search", At: "a.yaml:32:13"},
			Required:  []manifest.Right{{Tool: "web_search"}, {Capability: "web.read"}},
		}, {
			Reference: manifest.Reference{Name: "deploy", At: "a.yaml:42:18"},
			Tool:      manifest.Reference{Name: "deploy", At: "a.yaml:42:18"},
			Any:       true, Scoped: true,
			Agents: []manifest.Reference{{Name: "ci", At: "a.yaml:46:19"}},
			Operations: []manifest.OperationRule{
				{Class: "*", Verdict: manifest.Allow},
				{Class: manifest.ClassDelete, Verdict: manifest.ApprovalRequired, Approvers: []manifest.Approver{manifest.ApproverOperator, manifest.ApproverPasskey}},
			},
		}},
	}
	text := func(r manifest.Rules) string {
		raw, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if text(got) != text(want) {
		t.Errorf("got %s\nwant %s", text(got), text(want))
	}
}

// SPEC-TOOLS 8.2, 8.3: a document with a fault denies every call, and its fault has a place.
func TestT82FaultyRulesDeny(t *testing.T) {
	const head = "apiVersion: orloj.dev/v1\nmetadata: {name: a}\n"
	for text, want := range map[string]string{
		"kind: AgentRole\nspec: {permissions: ['web_search']}":                                                   `a.yaml:4:22: spec.permissions[0]: wants tool:NAME:invoke or capability:NAME, got "web_search"`,
		"kind: AgentRole\nspec: {permissions: ['tool:a*:invoke', 'tool::invoke', 'tool:a:read', 'capability:']}": "spec.permissions[3]",
		"kind: AgentRole\nspec: {permision: []}":                                                                 `spec.permision: unknown key; did you mean "permissions"?`,
		"kind: AgentPolicy\nspec: {blocked_tools: [a]}":                                                          "applies to nobody: name target_systems or target_tasks, or write apply_mode: global",
		"kind: AgentPolicy\nspec: {apply_mode: all, blocked_tools: [a]}":                                         "spec.apply_mode",
		"kind: AgentPolicy\nspec: {apply_mode: global, blocked_tools: [' ']}":                                    "spec.blocked_tools[0]: must not be empty",
		"kind: ToolPermission\nspec: {apply_mode: scoped}":                                                       "applies to nobody: apply_mode scoped wants target_agents",
		"kind: ToolPermission\nspec: {target_agents: [a]}":                                                       "spec.target_agents: is for apply_mode: scoped",
		"kind: ToolPermission\nspec: {action: list}":                                                             "spec.action",
		"kind: ToolPermission\nspec: {operation_rules: [{verdict: ask}]}":                                        "spec.operation_rules[0].verdict",
		"kind: ToolPermission\nspec: {operation_rules: [{operation_class: reads}]}":                              "spec.operation_rules[0].operation_class",
		"kind: ToolPermission\nspec: {operation_rules: [{verdict: deny, approvers: [client]}]}":                  "spec.operation_rules[0].approvers: is for verdict: approval_required",
		"kind: ToolPermission\nspec: {required_permissions: [3]}":                                                "spec.required_permissions[0]",
		"kind: ToolPermission\nspec: {required_permissions: ['capability:a'], required_permissions: []}":         "required_permissions",
		"kind: AgentPolicy\nspec: {apply_mode: global, blocked_tools: &x [a], target_tasks: *y}":                 "a.yaml",
	} {
		_, faults := rulesIn(t, head+text)
		if len(faults) != 1 || !strings.Contains(faults[0], want) || !strings.Contains(faults[0], "every call is denied") {
			t.Errorf("%s: %q, want %q", text, faults, want)
		}
	}
}
