package resource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC S1: a file of resources is read in a time that grows as it does.
func TestS1TheCostOfLists(t *testing.T) {
	const head = "apiVersion: orloj.dev/v1\nmetadata: {name: a}\n"
	for name, c := range map[string]struct{ text, item string }{
		"capabilities":         {head + "kind: Tool\nspec:\n  endpoint: http://127.0.0.1:1\n  capabilities:\n", "  - c%d\n"},
		"tool_filter":          {head + "kind: McpServer\nspec:\n  endpoint: http://127.0.0.1:1\n  transport: http\n  tool_filter:\n    include:\n", "    - t%d\n"},
		"permissions":          {head + "kind: AgentRole\nspec:\n  permissions:\n", "    - tool:t%d:invoke\n"},
		"required_permissions": {head + "kind: ToolPermission\nspec:\n  required_permissions:\n", "    - tool:t%d:invoke\n"},
		"blocked_tools":        {head + "kind: AgentPolicy\nspec:\n  apply_mode: global\n  blocked_tools:\n", "    - t%d\n"},
	} {
		t.Run(name, func(t *testing.T) {
			costtest.Check(t, 10_000, func(n int) func() {
				var text strings.Builder
				text.WriteString(c.text)
				for i := range n {
					fmt.Fprintf(&text, c.item, i)
				}
				return func() {
					if list, _, err := Parse(File{Display: "a.yaml"}, []byte(text.String())); err != nil || len(list) != 1 || list[0].Doc.Err() != nil {
						t.Fatal(list, err)
					}
				}
			})
		})
	}
}
