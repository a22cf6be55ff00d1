package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// newGate makes a FIFO that holds up a capsule's start until it is opened.
func newGate(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open lets one start through that waits, or will.
func open(t *testing.T, gate string) {
	t.Helper()
	testkit.Eventually(t, "a capsule waits at the gate", func() bool {
		f, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = f.Close()
		}
		return err == nil
	})
}

// gated is an answer.py that waits at a gate, and offers two tools.
func gated(gate string) string {
	return fmt.Sprintf("open(%q).read()\n", gate) + lists
}

const lists = "offers = ['one', 'two']\n\n\ndef answer(params):\n    return params['name']\n"

// readyz asks whether Orla is ready.
func (o *running) readyz() (status int, body string) {
	o.t.Helper()
	resp, err := http.Get(strings.TrimSuffix(o.url, "/mcp") + "/readyz")
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// SPEC G6, D7a: while a capsule starts, /readyz says so, and who lists the
// tools that nobody knows yet waits for them. What was known is known at once
// the next time, whatever has become of the capsule.
func TestD7aToolsAreListedFromTheFirstMoment(t *testing.T) {
	t.Parallel()
	tools, gate, state := t.TempDir(), newGate(t), t.TempDir()
	p := newPack(t, tools, "shelf", "startup_timeout_ms: 60000\nrestart: {initial_ms: 600000, max_ms: 600000}", map[string]string{"answer.py": gated(gate)})
	p.manifest("startup_timeout_ms: 60000\nrestart: {initial_ms: 600000, max_ms: 600000}", "")
	config := "state_dir: " + state + "\n"

	o := serveCapsules(t, tools, config)
	if status, body := o.readyz(); status != http.StatusServiceUnavailable || !strings.Contains(body, "starting") || !strings.Contains(body, "shelf") {
		t.Errorf("/readyz while a capsule starts: %d %s", status, body)
	}
	listed := make(chan string, 1)
	go func() { listed <- o.names() }()
	open(t, gate)
	if got := <-listed; got != "shelf__one shelf__two" {
		t.Errorf("the first tools/list = %q", got)
	}
	testkit.Eventually(t, "/readyz is 200", func() bool {
		status, _ := o.readyz()
		return status == http.StatusOK
	})
	if got := o.mustCall("shelf__two"); got != "two" {
		t.Errorf("shelf__two = %q", got)
	}
	o.signal(syscall.SIGTERM)
	o.wait()

	o = serveCapsules(t, tools, config)
	if got := o.names(); got != "shelf__one shelf__two" { // the gate is shut
		t.Errorf("tools/list right after a second start = %q", got)
	}
	if steps := o.histories()["shelf"]; len(steps) > 1 {
		t.Errorf("the list has waited for the capsule: %+v", steps)
	}
	call := make(chan string, 1)
	go func() { call <- o.mustCall("shelf__one") }()
	open(t, gate)
	if got := <-call; got != "one" {
		t.Errorf("a call that waited for the start = %q", got)
	}
	o.signal(syscall.SIGTERM)
	o.wait()

	p.save("answer.py", "raise SystemExit('no shelf today')\n")
	o = serveCapsules(t, tools, config)
	o.waitLog("state", is("shelf", "CRASHED"))
	if got := o.names(); got != "shelf__one shelf__two" {
		t.Errorf("tools/list of a broken capsule = %q", got)
	}
	a, err := o.call("shelf__one", "{}")
	if err != nil || a.Result == nil || !a.Result.IsError || a.Result.Meta["tool_code"] != "start_failed" || !strings.Contains(a.Result.Content[0].Text, "no shelf today") {
		t.Errorf("a call of a broken capsule: %+v, %v", a, err)
	}
	p.save("answer.py", lists)
	o.waitLog("state", is("shelf", "READY"))
	if got := o.mustCall("shelf__one"); got != "one" {
		t.Errorf("mended, it answers %q", got)
	}
}

// lateMain is an MCP server that exits unless a file is there, and takes its time to list what it offers.
const lateMain = `#!PYTHON -SEB
import json, os, sys, time

if not os.path.exists("THERE"):
    sys.exit("not yet")
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {"content": [{"type": "text", "text": "one"}]}
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "serverInfo": {"name": "late", "version": "1"}, "capabilities": {"tools": {}}}
    elif method == "tools/list":
        time.sleep(0.3)
        result = {"tools": [{"name": "one", "inputSchema": {"type": "object"}}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
`

// SPEC D7a: a call that comes when a capsule is READY for the first time, after failures, waits for its first lists.
func TestD7aACallWaitsForTheFirstLists(t *testing.T) {
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	tools, there := t.TempDir(), filepath.Join(t.TempDir(), "there")
	main := strings.NewReplacer("PYTHON", interpreter, "THERE", there).Replace(lateMain)
	newPack(t, tools, "late", "", map[string]string{"main.py": main}).manifest("handshake: mcp\nrestart: {initial_ms: 600000, max_ms: 600000}", "")
	o := serveCapsules(t, tools, "")
	o.waitLog("state", is("late", "CRASHED"))
	if got := o.names(); got != "" {
		t.Errorf("before it has ever started, tools/list = %q", got)
	}
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.mustOrla("start", "late", "--config", o.cmd.Args[len(o.cmd.Args)-1]) // other tests have an Orla too; until it is READY
	if got := o.mustCall("one"); got != "one" {
		t.Errorf("a call right after READY = %q", got)
	}
}

// SPEC D7a: a list waits startup_timeout_ms at most for a capsule that says nothing.
func TestD7aAListDoesNotWaitForASilentCapsule(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	p := newPack(t, tools, "mute", "", map[string]string{"answer.py": "import time\ntime.sleep(1000)\n"})
	p.manifest("startup_timeout_ms: 300\nrestart: {initial_ms: 600000, max_ms: 600000}", "")
	testkit.WriteTool(t, tools, "plain.sh", "#!/bin/sh\necho plain\n")
	o := serveCapsules(t, tools, "")
	if got := o.mustCall("plain"); got != "plain\n" {
		t.Errorf("plain = %q", got)
	}
	if got := o.names(); got != "mute plain" {
		t.Errorf("tools/list = %q", got)
	}
	o.waitLog("state", is("mute", "STARTING", "first start"))
	o.waitLog("state", is("mute", "CRASHED", "no orla.hello within 300ms"))
	testkit.Eventually(t, "/readyz is 200: what did not start is not starting", func() bool {
		status, _ := o.readyz()
		return status == http.StatusOK
	})
}

// SPEC D7a: a lazy capsule starts at its first call, and idle_timeout ends it.
func TestD7aLazyStartAndIdleStop(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	p := newPack(t, tools, "lazy", "start: lazy\nidle_timeout: 200ms", map[string]string{"answer.py": says("'awake'")})
	o := serveCapsules(t, tools, "")
	log := o.follow()
	if status, body := o.readyz(); status != http.StatusOK {
		t.Errorf("/readyz with a lazy capsule: %d %s", status, body)
	}
	if got := o.names(); got != "lazy" {
		t.Errorf("tools/list = %q", got)
	}
	if pids := p.pids(); len(pids) > 0 {
		t.Errorf("it runs before its first call: %v", pids)
	}
	for range 2 {
		if got := o.mustCall("lazy"); got != "awake" {
			t.Errorf("lazy = %q", got)
		}
		log.next("state", is("lazy", "STARTING", "a call wants it"))
		log.next("state", is("lazy", "STOPPED", "no call for 200ms"))
		if pids := p.pids(); len(pids) > 0 {
			t.Errorf("it runs while it is idle: %v", pids)
		}
	}
	p.save("answer.py", says("'renewed'"))
	if got := o.mustCall("lazy"); got != "awake" && got != "renewed" { // the change may be seen later
		t.Errorf("lazy = %q", got)
	}
}

// SPEC J1: orla dev serves one capsule, with a log for people; what is saved is
// live, and mistakes are told and mended.
func TestJ1DevServesWhatIsSaved(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	p := newPack(t, tools, "draft", "", map[string]string{"answer.py": says("'one'")})
	testkit.WriteTool(t, tools, "beside.sh", "#!/bin/sh\n")
	o := startCommand(t, t.TempDir(), checkedBinary(t), "dev", filepath.Join(p.dir, "tool.yaml"), "--port", "0")
	// The log is text. A line is told by a part of it.
	tells := func(parts ...string) string {
		t.Helper()
		var found string
		testkit.Eventually(t, fmt.Sprintf("the log has a line with %q", parts), func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			for _, l := range o.lines {
				text, _ := l["text"].(string)
				fits := true
				for _, part := range parts {
					fits = fits && strings.Contains(text, part)
				}
				if fits {
					found = text
					return true
				}
			}
			return false
		})
		return found
	}
	_, rest, _ := strings.Cut(tells("INF serving", "url="), "url=")
	o.url = strings.Fields(rest)[0]
	if got := o.names(); got != "draft" {
		t.Errorf("orla dev serves %q", got)
	}
	answers := func(want string) {
		t.Helper()
		testkit.Eventually(t, "the capsule answers "+want, func() bool {
			text, err := o.plain("draft")()
			return err == nil && text == want
		})
	}
	answers("one")
	p.save("answer.py", says("'two'"))
	answers("two")
	tells("INF state", "answer.py changed")
	p.manifest("tiemout: 5s", "mcp: {input_schema: {type: object}}")
	tells("ERR", "tool.yaml:", "tiemout", "did you mean")
	answers("two")
	p.manifest("timeout: 5s", "mcp: {input_schema: {type: object}}")
	tells("INF reload", "draft")
	p.save("answer.py", "raise RuntimeError('half done')\n")
	tells("half done")
	p.save("answer.py", says("'three'"))
	answers("three")
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// SPEC J1: orla dev begins with a tool that is wrong, and serves it once it is right.
func TestJ1DevBeginsWithAMistake(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	p := newPack(t, tools, "draft", "", map[string]string{"answer.py": says("'fine'")})
	p.manifest("tiemout: 5s", "")
	o := startCommand(t, t.TempDir(), checkedBinary(t), "dev", p.dir, "--port", "0", "--log-format", "json")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.waitLog("a tool is not served", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l["err"]), "tiemout") })
	p.manifest("", "")
	testkit.Eventually(t, "the mended capsule answers", func() bool {
		text, err := o.plain("draft")()
		return err == nil && text == "fine"
	})
}

// SPEC G1, J1: on stdio the end of the client ends the capsule.
func TestG1TheClientsEndEndsItsCapsules(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	p := newPack(t, tools, "child", "", map[string]string{"answer.py": leavesDaemon + says("'ok'")})
	cmd := exec.Command(checkedBinary(t), "--stdio", "--tools-dir", tools)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may be over
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"child"}}`,
	} {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var m struct {
			ID     json.Number
			Result struct{ Content []struct{ Text string } }
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if m.ID == "1" {
			if len(m.Result.Content) != 1 || m.Result.Content[0].Text != "ok" {
				t.Errorf("answer = %s", lines.Text())
			}
			break
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left := p.pids(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
