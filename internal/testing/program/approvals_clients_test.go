package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// wantsApproval are rules for a tool.
func wantsApproval(tool, approvers string) string {
	return "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: " + tool + "}\nspec:\n  operation_rules:\n" +
		"    - {operation_class: \"*\", verdict: approval_required, approvers: [" + approvers + "]}\n"
}

// SPEC-TOOLS 8.7: the person at a client of each official SDK, era and transport is asked, and the call runs once.
func TestT87PeopleAtForeignClientsAreAsked(t *testing.T) {
	t.Parallel()
	for _, s := range sdks(t) {
		if s.via == "sse" || s.via == "stdio" && s.name == "typescript-1" {
			continue // the same as over HTTP, and as with the newer SDK
		}
		t.Run(s.name+" "+s.era+" "+s.via, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tools, ran := filepath.Join(dir, "tools"), filepath.Join(dir, "ran")
			testkit.WriteTool(t, tools, "hello", "#!/bin/sh\ncat >>"+ran+"\necho >>"+ran+"\necho hello\n")
			if err := os.WriteFile(filepath.Join(tools, "rule.yaml"), []byte(wantsApproval("hello", "client")), 0o600); err != nil {
				t.Fatal(err)
			}
			o := &running{}
			if s.via != "stdio" {
				o = serveOrla(t, tools)
			}
			s.argv = append(s.argv, "--answer")
			c := s.connect(t, o, tools)
			for _, args := range []fields{{"b": 1, "a": 2}, {"b": 1, "a": 3}} {
				_, said := c.send("call", fields{"name": "hello", "arguments": args})
				if a := c.await(said); !a.OK || !strings.Contains(string(a.Result), "hello") || strings.Contains(string(a.Result), `"isError":true`) {
					t.Errorf("%s %+v", a.Result, a.Error)
				}
			}
			if got := testkit.ReadFile(t, ran); got != `{"a":2,"b":1}`+"\n"+`{"a":3,"b":1}`+"\n" {
				t.Errorf("these calls ran:\n%s", got)
			}
		})
	}
}
