package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// changingServer lists one tool with the annotations in hints, and writes its calls into calls.
const changingServer = `#!/usr/bin/env python3
import json, os, sys
def say(i, r):
    print(json.dumps({"jsonrpc": "2.0", "id": i, "result": r}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    i = m.get("id")
    if i is None:
        continue
    if m["method"] == "initialize":
        say(i, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "box", "version": "1"}})
    elif m["method"] == "tools/list":
        with open("hints") as f:
            say(i, {"tools": [{"name": "drop", "description": "Drops.", "inputSchema": {"type": "object"}, "annotations": json.load(f)}]})
    elif m["method"] == "tools/call":
        with open("calls", "a") as f:
            f.write("called\n")
        say(i, {"content": [{"type": "text", "text": "dropped"}]})
    else:
        say(i, {})
`

// SPEC-TOOLS 8.7: somebody approves a call, and Orla and the tool's server start again before it is made. If the server says
// something else of the tool then, the call asks again, and the tool does not run by the old approval.
func TestT87AnApprovalIsForWhatTheServerSaidOfItsTool(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]syscall.Signal{"a stop": syscall.SIGTERM, "kill -9": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &asking{program: orlaBinary(t), socket: shortPath(t)}
			a.dir = filepath.Dir(a.socket)
			box := filepath.Join(a.dir, "tools", "box")
			testkit.WriteTool(t, box, "main.py", changingServer)
			testkit.WriteTool(t, box, "tool.yaml", "name: box\nversion: 1.0.0\ndescription: A box.\nentrypoint: main.py\nruntime: {mode: capsule, handshake: mcp, pin: \"off\"}\n")
			hints := func(deletes bool) {
				testkit.WriteTool(t, box, "hints", fmt.Sprintf(`{"readOnlyHint": %t, "destructiveHint": %t}`, !deletes, deletes))
			}
			hints(false)
			testkit.WriteTool(t, filepath.Join(a.dir, "tools"), "rule.yaml", strings.Replace(fmt.Sprintf(wipeRule, ""), "spec: {", "spec: {tool_ref: box, ", 1))
			a.configure(t, "approvals: {same_user: true}\n")
			start := func() {
				a.running = startPrepared(t, a.dir, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "HOME="+a.dir) }, a.program, "--socket", a.socket)
				a.url, _ = a.waitLog("serving", nil)["url"].(string)
			}
			begins := func() <-chan [2]string { return a.beginsCall("drop", `{}`) }
			approve := func() string {
				r := a.waiting()
				a.mustOrla("approvals", "approve", r.ID, "--socket", a.socket)
				return r.Class
			}
			stop := func() {
				a.signal(end)
				a.wait()
			}
			calls := func() int {
				text, _ := os.ReadFile(filepath.Join(box, "calls"))
				return strings.Count(string(text), "called")
			}
			start()
			a.waitLog("offers", nil)
			begins()
			r := a.waiting()
			if r.Class != "read" || !strings.HasPrefix(r.Defined, "sha256:") {
				t.Errorf("the record is %+v", r)
			}
			stop() // the client's call ends with it
			start()
			if class := approve(); class != "read" {
				t.Errorf("the class is %s", class)
			}
			stop()
			hints(true)
			start()
			over := begins()
			if now := a.waiting(); now.ID == r.ID || now.Class != "delete" || now.Last.Defined != r.Defined || now.Defined == r.Defined {
				t.Errorf("it waits for %+v", now)
			}
			if n := calls(); n != 0 {
				t.Errorf("it was called %d times by an approval of another call", n)
			}
			approve()
			a.wants(over, "dropped", "")
			if n := calls(); n != 1 {
				t.Errorf("it was called %d times", n)
			}
		})
	}
}
