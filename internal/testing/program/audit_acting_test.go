package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC-TOOLS 8.8: the line of a call says for which agent and task it was made, also that of a call that is refused before it
// reaches a tool.
func TestT88LinesSayWhoActsForWhom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "hello.sh", "#!/bin/sh\necho hello\n")
	o, path := audited(t, dir, "callers: [{name: anonymous, may_speak_for: [bot]}]\n")
	const meta = `"_meta":{"orloj.dev/task":"t1","orloj.dev/agent":"%"}`
	for _, params := range []string{
		`{"name":"hello","arguments":{},` + strings.ReplaceAll(meta, "%", "bot") + `}`,
		`{"name":"hello","arguments":{},` + strings.ReplaceAll(meta, "%", "eve") + `}`,
		`{"name":"nope","arguments":{},` + strings.ReplaceAll(meta, "%", "bot") + `}`,
		`{"name":"hello","arguments":[1],` + strings.ReplaceAll(meta, "%", "bot") + `}`,
		`{"name":5}`,
	} {
		if _, err := o.post("tools/call", params); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"bot t1 hello allow ok", "eve t1 hello deny permission_denied", "bot t1 nope none unsupported_tool", "bot t1 hello none invalid_input", "   none invalid_input"}
	auditLines(t, path, len(want))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var l struct{ Event, Agent, Task, Tool, Verdict, Outcome string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == "call" {
			got = append(got, strings.Join([]string{l.Agent, l.Task, l.Tool, l.Verdict, l.Outcome}, " "))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if shown := o.mustOrla("audit", "show", "--verdict", "deny"); !strings.Contains(shown, "agent=eve  task=t1") {
		t.Errorf("orla audit show: %s", shown)
	}
}
