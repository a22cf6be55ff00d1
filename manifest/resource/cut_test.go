package resource

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3: of a file whose end is gone, as when the machine stopped while it was written, no beginning opens what the
// whole file forbids, if anybody can tell that it is one. Nobody can where it ends with a whole document.
func TestT83TheBeginningOfAFileOfRulesDenies(t *testing.T) {
	const head = "apiVersion: orloj.dev/v1\n"
	firsts := map[string]string{
		"a tool": head + "kind: Tool\nmetadata: {name: tool}\nspec: {endpoint: 'http://127.0.0.1:1'}\n",
		"a role": head + "kind: AgentRole\nmetadata: {name: r}\nspec: {permissions: ['tool:x:invoke']}\n",
	}
	file := filepath.Join(t.TempDir(), "a.yaml")
	for name, rule := range map[string]string{
		"a policy":                   head + "kind: AgentPolicy\nmetadata: {name: p}\nspec:\n  apply_mode: global\n  blocked_tools: [wipe]\n",
		"a policy, quoted":           "\"apiVersion\": \"orloj.dev/v1\"\n\"kind\": \"AgentPolicy\"\n'metadata': {'name': 'p'}\nspec: {apply_mode: 'global', blocked_tools: ['wipe']}\n",
		"a policy, in braces":        `{apiVersion: orloj.dev/v1, kind: AgentPolicy, metadata: {name: p}, spec: {apply_mode: global, blocked_tools: [wipe]}}`,
		"a policy, its kind first":   "kind: AgentPolicy\n" + head + "metadata:\n  name: p\nspec:\n  blocked_tools: [wipe]\n  apply_mode: global\n",
		"a policy, its name first":   "metadata:\n  name: p\n" + head + "kind: AgentPolicy\nspec:\n  apply_mode: global\n  blocked_tools: [wipe]\n",
		"a policy, its rule first":   "spec:\n  apply_mode: global\n  blocked_tools: [wipe]\nmetadata: {name: p}\nkind: AgentPolicy\n" + head,
		"a policy below a comment":   "\n# nobody wipes\n" + head + "kind: AgentPolicy\nmetadata: {name: p}\nspec: {apply_mode: global, blocked_tools: [wipe]}\n",
		"a permission":               head + "kind: ToolPermission\nmetadata: {name: wipe}\nspec:\n  operation_rules:\n    - verdict: deny\n",
		"a permission of a tool_ref": head + "kind: ToolPermission\nmetadata: {name: p}\nspec:\n  action: invoke\n  tool_ref: wipe\n  required_permissions: ['tool:wipe:invoke']\n",
	} {
		for before, first := range firsts {
			whole := first + "---\n" + rule
			for n := len(first); n < len(whole); n++ {
				begun := strings.TrimSpace(strings.TrimPrefix(whole[len(first):n], "---"))
				if n == len(first) || strings.HasPrefix(begun, "#") && !strings.Contains(begun, "\n") {
					continue // the first document alone, or with a comment
				}
				if !denies(t, file, whole[:n]) {
					t.Errorf("%s after %s: this opens: %q", name, before, whole[len(first):n])
				}
			}
			if all, faults := rulesIn(t, whole); faults != nil || all.Empty() {
				t.Errorf("%s after %s: %q", name, before, faults)
			}
		}
	}
}

// denies reports whether a file that had rules denies calls of wipe, or every call, if it has this text.
func denies(t *testing.T, file, text string) bool {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, unsure, err := Parse(File{Display: file}, []byte(text))
	var all manifest.Rules
	for _, d := range list {
		if all = all.With(d.Rules); d.Rule {
			return true
		}
	}
	blocks := func(p manifest.Policy) bool { return p.Blocked[0].Name == "wipe" }
	wants := func(p manifest.Permission) bool {
		return p.Tool.Name == "wipe" && len(p.Operations)+len(p.Required) > 0
	}
	return err != nil || unsure || slices.ContainsFunc(all.Policies, blocks) || slices.ContainsFunc(all.Permissions, wants) ||
		all.Empty() && !Declares(file)
}

// SPEC-TOOLS 8.3: what is whole beside rules denies nothing.
func TestT83WhatIsNotCutDeniesNothing(t *testing.T) {
	const rule = "apiVersion: orloj.dev/v1\nkind: AgentRole\nmetadata: {name: r}\nspec: {permissions: ['tool:x:invoke']}\n"
	for name, text := range map[string]string{
		"an end":               rule + "...\n",
		"a comment":            rule + "---\n# apiVersion: orloj.dev/v1\n# kind: AgentPolicy\n",
		"data, and a rule":     "---\n---\na: 1\n---\n" + rule,
		"somebody else's":      rule + "---\napiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n",
		"a name of somebody's": rule + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n",
		"of Orloj":             rule + "---\napiVersion: orloj.dev/v1\nkind: Agent\nmetadata: {name: a}\nspec: {model: x}\n",
		"a faulty tool":        rule + "---\napiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: a}\nspec: {type: no}\n",
		"a part of a tool":     rule + "---\napiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: a}\nspec: {type: [\n",
	} {
		list, unsure, _ := Parse(File{Display: "a.yaml"}, []byte(text))
		if unsure || slices.ContainsFunc(list, func(d *Declaration) bool { return d.Rule }) {
			t.Errorf("%s denies every call", name)
		}
	}
}
