package program

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// auditLine is what these tests read of a line of the audit log.
type auditLine struct {
	Event, Caller, Tool, Target, Verdict, Outcome string
	CallID                                        string          `json:"call_id"`
	TraceID                                       string          `json:"trace_id"`
	ArgsSHA256                                    string          `json:"args_sha256"`
	Args                                          json.RawMessage `json:"args"`
}

// audited serves the tools of dir with an audit log, and returns its path.
func audited(t *testing.T, dir, more string) (*running, string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "orla.yaml"), []byte("audit_log: audit.log\nstate_dir: state\n"+more), 0o644); err != nil {
		t.Fatal(err)
	}
	return serveThere(t, dir), filepath.Join(dir, "audit.log")
}

// auditLines waits until the log has n calls, and returns them.
func auditLines(t *testing.T, path string, n int) (calls []auditLine) {
	t.Helper()
	testkit.Eventually(t, "the calls are in the audit log", func() bool {
		calls = nil
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		for line := range bytes.Lines(text) {
			var l auditLine
			if json.Unmarshal(line, &l) == nil && l.Event == "call" {
				calls = append(calls, l)
			}
		}
		return len(calls) >= n
	})
	return calls
}

// SPEC-TOOLS 8.8: each call has a line, whichever way it came and however it ended.
func TestT88EveryCallHasALine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\n# /// tool\n# mcp:\n#   input_schema:\n#     name: string?\n# ///\necho hello\n")
	testkit.WriteTool(t, tools, "fails.sh", "#!/bin/sh\nexit 3\n")
	newPack(t, tools, "pack", "", map[string]string{"answer.py": says("'hi'")})
	o, path := audited(t, dir, "audit_arguments: full\n")
	o.waitLog("state", is("pack", "READY"))

	o.mustCall("hello")
	o.mustCall("pack")
	if _, code := o.coded("fails", `{}`); code != "execution_failed" {
		t.Errorf("fails: %s", code)
	}
	o.coded("hello", `{"name": 1, "b": [1.0]}`)
	if _, code := o.coded("nope", "{}"); code != "unsupported_tool" {
		t.Errorf("nope: %s", code)
	}
	o.mustOrla("call", "hello")
	if s := o.orla("call", "hello", "--socket", "none"); s.code == 0 || !strings.Contains(s.err, "another process has it") {
		t.Errorf("a second Orla wrote the same audit log: %d %s", s.code, s.err)
	}
	policy := testkit.WriteTool(t, tools, "policy.yaml", permission)
	o.waitReady(http.StatusServiceUnavailable)
	if _, code := o.coded("hello", "{}"); code != "permission_denied" {
		t.Errorf("denied: %s", code)
	}
	if err := os.Remove(policy); err != nil {
		t.Fatal(err)
	}

	want := []auditLine{
		{Caller: "anonymous", Tool: "hello", Target: "hello", Verdict: "allow", Outcome: "ok"},
		{Caller: "anonymous", Tool: "pack", Target: "pack", Verdict: "allow", Outcome: "ok"},
		{Caller: "anonymous", Tool: "fails", Target: "fails", Verdict: "allow", Outcome: "execution_failed"},
		{Caller: "anonymous", Tool: "hello", Target: "hello", Verdict: "allow", Outcome: "invalid_input"},
		{Caller: "anonymous", Tool: "nope", Verdict: "none", Outcome: "unsupported_tool"},
		{Caller: "cli", Tool: "hello", Target: "hello", Verdict: "allow", Outcome: "ok"},
		{Caller: "anonymous", Tool: "hello", Target: "hello", Verdict: "deny", Outcome: "permission_denied"},
	}
	got := auditLines(t, path, len(want))
	ids := map[string]bool{}
	for i, l := range got {
		if i >= len(want) {
			t.Errorf("another line: %+v", l)
			continue
		}
		if l.CallID == "" || ids[l.CallID] || len(l.ArgsSHA256) != 64 {
			t.Errorf("line %d: %+v", i, l)
		}
		ids[l.CallID] = true
		if i == 3 && string(l.Args) != `{"b":[1.0],"name":1}` {
			t.Errorf("the arguments are %s", l.Args)
		}
		l.Event, l.CallID, l.ArgsSHA256, l.Args, l.TraceID = "", "", "", nil, ""
		if l.Caller != want[i].Caller || l.Tool != want[i].Tool || l.Target != want[i].Target || l.Verdict != want[i].Verdict || l.Outcome != want[i].Outcome {
			t.Errorf("line %d is %+v; want %+v", i, l, want[i])
		}
	}
	for id := range ids {
		o.waitLog("call", func(l map[string]any) bool { return l["call_id"] == id })
	}
	if got := o.mustOrla("audit", "show", "--verdict", "deny"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "permission_denied") {
		t.Errorf("orla audit show --verdict deny: %s", got)
	}
	if got := o.mustOrla("audit", "show", "--caller", "cli", "-o", "json"); !strings.HasPrefix(got, `{"seq":`) || strings.Count(got, "\n") != 1 {
		t.Errorf("orla audit show --caller cli: %s", got)
	}
	o.signal(syscall.SIGTERM)
	o.wait()
	if got := o.mustOrla("audit", "verify"); !strings.Contains(got, "7 calls") || strings.Contains(got, "note") {
		t.Errorf("orla audit verify: %s", got)
	}
	o.cutIsFound(path)
}

// cutIsFound cuts the last line of an audit log, and wants orla audit verify to say so.
func (o *running) cutIsFound(path string) {
	o.t.Helper()
	text := testkit.ReadFile(o.t, path)
	cut := text[:strings.LastIndexByte(text[:len(text)-1], '\n')+1]
	if err := os.WriteFile(path, []byte(cut), 0o600); err != nil {
		o.t.Fatal(err)
	}
	if s := o.orla("audit", "verify"); s.code != 1 || !strings.Contains(s.out, "the end is cut") {
		o.t.Errorf("orla audit verify of a cut file ends with %d: %s%s", s.code, s.out, s.err)
	}
}

// SPEC-TOOLS 8.8: kill -9 under load leaves a log that verifies up to its last whole line, and the next Orla
// continues it.
func TestT88AKilledOrlaLeavesALogThatVerifies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newPack(t, filepath.Join(dir, "tools"), "pack", "", map[string]string{"answer.py": says("'hi'")})
	o, path := audited(t, dir, "")
	home := o.home()
	for round := range 3 {
		o.waitLog("state", is("pack", "READY"))
		var answered atomic.Int64
		var load sync.WaitGroup
		for range 4 {
			load.Go(func() {
				for {
					if a, err := o.call("pack", "{}"); err != nil || a.Result == nil {
						return // it is gone
					}
					answered.Add(1)
				}
			})
		}
		testkit.Eventually(t, "there is load", func() bool { return answered.Load() > 100 })
		o.signal(syscall.SIGKILL)
		load.Wait()
		o.wait()
		if s := o.orla("audit", "verify"); s.code != 0 && !strings.Contains(s.out, "the log ends within line ") {
			t.Fatalf("round %d: orla audit verify ends with %d:\n%s%s", round, s.code, s.out, s.err)
		}
		o = startAs(t, home, dir, orlaBinary(t), "--port", "0")
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
	}
	o.signal(syscall.SIGTERM)
	o.wait()
	if got := o.mustOrla("audit", "verify"); !strings.Contains(got, "ok    signed up to") {
		t.Errorf("orla audit verify: %s", got)
	}
	if starts := strings.Count(testkit.ReadFile(t, path), `"event":"start"`); starts != 4 {
		t.Errorf("there are %d starts", starts)
	}
}

// SPEC-TOOLS 8.8: after a rotation, SIGHUP continues the chain in a new file.
func TestT88SIGHUPContinuesInANewFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "hello.sh", "#!/bin/sh\necho hello\n")
	o, path := audited(t, dir, "")
	o.mustCall("hello")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	o.mustCall("hello")
	o.signal(syscall.SIGHUP)
	testkit.Eventually(t, "the new file is written", func() bool { // it is there before the last lines of the old one
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), `"event":"start"`)
	})
	o.mustCall("hello")
	auditLines(t, path, 1)
	if got := o.mustOrla("audit", "verify", path+".1", path); !strings.Contains(got, "3 calls") || strings.Contains(got, "note  the log begins") {
		t.Errorf("orla audit verify: %s", got)
	}
	if s := o.orla("audit", "verify", path, path+".1"); s.code != 1 {
		t.Errorf("files out of order: %d %s", s.code, s.out)
	}
	o.signal(syscall.SIGTERM)
	o.wait()
}

// SPEC-TOOLS 8.8: while the audit log cannot be written, no call is made, and /readyz says so. What was cut is
// noted by the next Orla.
func TestT88AFullDiskRefusesCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "hello.sh", "#!/bin/sh\necho hello\necho >>"+ran+"\n")
	if err := os.WriteFile(filepath.Join(dir, "orla.yaml"), []byte("audit_log: audit.log\nstate_dir: state\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	limited := startCommand(t, dir, "sh", "-c", `ulimit -f 8; exec "$0" "$@"`, orlaBinary(t), "--port", "0") // files of a few KiB
	limited.url, _ = limited.waitLog("serving", nil)["url"].(string)
	for refused := false; !refused; {
		text, code := limited.coded("hello", "{}")
		refused = code == "not_ready" && strings.Contains(text, "the audit log cannot be written")
		if !refused && text != "hello\n" {
			t.Fatalf("%s: %s", code, text)
		}
	}
	made := len(testkit.ReadFile(t, ran))
	if _, code := limited.coded("hello", "{}"); code != "not_ready" || len(testkit.ReadFile(t, ran)) != made {
		t.Errorf("a call that cannot be recorded ends with %s, or was made", code)
	}
	if _, code := limited.coded("nope", "{}"); code != "unsupported_tool" {
		t.Errorf("nope: %s", code)
	}
	if status, body := limited.readyz(); status != http.StatusServiceUnavailable || !strings.Contains(body, `"audit_log"`) {
		t.Errorf("/readyz is %d: %s", status, body)
	}
	limited.signal(syscall.SIGTERM)
	limited.waitLog("lines of the audit log are lost", nil)
	limited.wait()

	o := startAs(t, limited.home(), dir, orlaBinary(t), "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.mustCall("hello")
	o.signal(syscall.SIGTERM)
	o.wait()
	if got := o.mustOrla("audit", "verify"); !strings.Contains(got, "was cut in the middle of a write") || !strings.Contains(got, "ok    signed up to") {
		t.Errorf("orla audit verify: %s", got)
	}
}

// SPEC-TOOLS 8.8: an Orla that cannot open its audit log does not serve.
func TestT88AnAuditLogThatCannotBeOpenedIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "hello.sh", "#!/bin/sh\necho hello\n")
	config := filepath.Join(dir, "orla.yaml")
	for name, text := range map[string]string{
		"a folder":     "audit_log: tools\nstate_dir: state\n",
		"no journal":   "audit_log: journal\nstate_dir: state\n",
		"odd choice":   "audit_log: audit.log\naudit_arguments: some\n",
		"below a file": "audit_log: orla.yaml/audit.log\nstate_dir: state\n",
	} {
		if name == "no journal" {
			if _, err := os.Stat("/run/systemd/journal/socket"); err == nil {
				continue
			}
		}
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		o := startOrla(t, dir, "--port", "0")
		if code := o.wait(); code == 0 {
			t.Errorf("%s: Orla serves", name)
		}
	}
}
