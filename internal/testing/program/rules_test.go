package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// ruled is an Orla with callers ann, bob and eve, a capsule of two tools with a resource and a prompt, and
// simple tools.
type ruled struct {
	*running
	t      *testing.T
	dir    string
	tokens map[string]string
}

// ruledCapsule writes down beside the tools folder which of its tools ran.
const ruledCapsule = `import json, os, sys
def answer(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    method, id = m.get("method"), m.get("id")
    if method == "initialize":
        answer(id, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}, "serverInfo": {"name": "box", "version": "1"}})
    elif method == "tools/list":
        answer(id, {"tools": [{"name": n, "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": n == "wipe", "readOnlyHint": n == "look"}} for n in ("look", "wipe")]})
    elif method == "resources/list":
        answer(id, {"resources": [{"uri": "box://one", "name": "one"}]})
    elif method == "prompts/list":
        answer(id, {"prompts": [{"name": "ask"}]})
    elif method == "tools/call":
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "ran"), "a") as ran:
            print(m["params"]["name"], file=ran)
        answer(id, {"content": [{"type": "text", "text": "did " + m["params"]["name"]}]})
    elif method == "resources/read":
        answer(id, {"contents": [{"uri": "box://one", "text": "secret"}]})
    elif method == "prompts/get":
        answer(id, {"messages": []})
    elif method == "completion/complete":
        answer(id, {"completion": {"values": []}})
    elif id is not None:
        answer(id, {})
`

const ruledManifest = "name: box\nversion: 1.0.0\ndescription: A box.\nentrypoint: main.py\nruntime: {mode: capsule, handshake: mcp}\n"

func serveRuled(t *testing.T, rules, callers string) *ruled {
	t.Helper()
	r := &ruled{t: t, dir: t.TempDir(), tokens: map[string]string{}}
	tools := filepath.Join(r.dir, "tools")
	testkit.WriteTool(t, tools, "hello", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, tools, "other", "#!/bin/sh\necho other\n")
	testkit.WriteTool(t, filepath.Join(tools, "box"), "main.py", "#!/usr/bin/env python3\n"+ruledCapsule)
	r.write("tools/box/tool.yaml", ruledManifest)
	r.write("tools/alias.yaml", "apiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: peek}\nspec: {type: mcp, mcp_server_ref: box, mcp_tool_name: look}\n")
	for _, name := range []string{"ann", "bob", "eve"} {
		r.tokens[name] = strings.Repeat(name, 8)
		r.write(name, r.tokens[name])
	}
	r.write("tools/rules.yaml", rules)
	r.configure(callers)
	r.running = startOrla(t, t.TempDir(), "--config", filepath.Join(r.dir, "orla.yaml"))
	r.url, _ = r.waitLog("serving", nil)["url"].(string)
	r.waitLog("offers", nil)
	return r
}

func (r *ruled) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *ruled) configure(callers string) {
	r.t.Helper()
	r.write("orla.yaml", "port: 0\ntools_dir: tools\nauth:\n  tokens:\n    - {name: ann, file: ann}\n    - {name: bob, file: bob}\n    - {name: eve, file: eve}\n"+callers)
}

// reload has files read again.
func (r *ruled) reload() {
	r.t.Helper()
	r.mustOrla("reload")
}

// asks makes a request without a session, and returns the whole answer.
func (r *ruled) asks(caller, method, params string) string {
	r.t.Helper()
	answer, _ := r.send(caller, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	return answer
}

// sees returns the tools that a caller is told of.
func (r *ruled) sees(caller string) (names []string) {
	r.t.Helper()
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	answer := r.asks(caller, "tools/list", "{}")
	if at := strings.Index(answer, "{"); at > 0 {
		answer = answer[at:]
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		r.t.Fatalf("%v: %s", err, answer)
	}
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func (r *ruled) mayCall(caller, tool string) bool {
	r.t.Helper()
	answer := r.asks(caller, "tools/call", `{"name":"`+tool+`"}`)
	denied := strings.Contains(answer, "tool_permission_denied")
	if denied == strings.Contains(answer, `"isError":false`) && !strings.Contains(answer, "did ") && !strings.Contains(answer, "exit_code") {
		r.t.Errorf("%s calls %s: %s", caller, tool, answer)
	}
	return !denied
}

const ruledDocuments = `apiVersion: orloj.dev/v1
kind: AgentRole
metadata: {name: greeter}
spec: {permissions: ['tool:HELLO:invoke']}
---
apiVersion: orloj.dev/v1
kind: AgentRole
metadata: {name: looker}
spec: {permissions: ['tool:box__look:invoke']}
---
apiVersion: orloj.dev/v1
kind: ToolPermission
metadata: {name: box}
spec:
  operation_rules:
    - {operation_class: delete, verdict: deny}
`

// SPEC-TOOLS 8.3, 8.4, 8.6: a caller sees and calls what its roles and the rules allow, whatever the tool is
// called by; what a capsule offers besides tools follows its tools; a reload changes all of it.
func TestT86EachCallerHasItsOwnLists(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, ruledDocuments, "callers:\n  - {name: ann, roles: [greeter]}\n  - {name: bob, roles: [looker]}\n")
	for caller, want := range map[string][]string{
		"ann": {"box__look", "hello", "peek"}, "bob": {"box__look", "peek"}, "eve": {"box__look", "hello", "other", "peek"},
	} {
		if got := r.sees(caller); !slices.Equal(got, want) {
			t.Errorf("%s sees %v, want %v", caller, got, want)
		}
		for _, tool := range []string{"box__look", "box__wipe", "hello", "other", "peek"} {
			if got := r.mayCall(caller, tool); got != slices.Contains(want, tool) {
				t.Errorf("%s may call %s: %v", caller, tool, got)
			}
		}
	}

	// The tool's own name, and its alias, are one target with the name that clients use.
	r.write("tools/more.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no-looking}\nspec: {target_systems: [eve], blocked_tools: [PEEK]}\n")
	r.reload()
	testkit.Eventually(t, "the alias is blocked", func() bool { return !slices.Contains(r.sees("eve"), "peek") })
	if got := r.sees("eve"); slices.Contains(got, "box__look") || r.mayCall("eve", "box__look") {
		t.Errorf("a rule for an alias leaves %v", got)
	}
	for _, request := range [][2]string{{"resources/read", `{"uri":"box://one"}`}, {"prompts/get", `{"name":"box__ask"}`}, {"prompts/get", `{"name":"ask"}`}} {
		if answer := r.asks("eve", request[0], request[1]); !strings.Contains(answer, "tool_permission_denied") && !strings.Contains(answer, "there is no prompt") {
			t.Errorf("eve may call no tool of box, and %s gives %s", request[0], answer)
		}
		if answer := r.asks("bob", request[0], request[1]); strings.Contains(answer, "tool_permission_denied") {
			t.Errorf("bob: %s gives %s", request[0], answer)
		}
	}
	if answer := r.asks("eve", "resources/list", "{}"); strings.Contains(answer, "box://one") {
		t.Errorf("eve is told of %s", answer)
	}
	if answer := r.asks("bob", "resources/list", "{}"); !strings.Contains(answer, "box://one") {
		t.Errorf("bob is told of %s", answer)
	}

	// Other roles at a reload.
	r.configure("callers:\n  - {name: ann, roles: [looker]}\n")
	r.reload()
	if got := r.sees("ann"); slices.Contains(got, "hello") {
		t.Errorf("after the reload ann sees %v", got)
	}
}

// SPEC-TOOLS 8.6: while a document cannot be read, which may hide any tool from anybody, no list has anything. The metrics are for
// those who could read them before.
func TestT86NoListHasWhatAFaultyDocumentMayHide(t *testing.T) {
	t.Parallel()
	const hides = "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no}\nspec: {target_systems: [eve], blocked_tools: [box, other]}\n"
	r := serveRuled(t, hides, "toolsets:\n  - {name: greetings, tools: [hello]}\ncallers:\n  - {name: bob, toolsets: [greetings]}\n")
	metrics := func(caller string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(r.url, "/mcp")+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.tokens[caller])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := r.sees("eve"); !slices.Equal(got, []string{"hello"}) {
		t.Fatalf("eve sees %v", got)
	}
	r.write("tools/rules.yaml", strings.Replace(hides, "blocked_tools", "blocked_tols", 1))
	r.reload()
	for _, caller := range []string{"ann", "bob", "eve"} {
		if got := r.sees(caller); len(got) > 0 {
			t.Errorf("%s sees %v", caller, got)
		}
		for _, method := range []string{"resources/list", "prompts/list"} {
			if answer := r.asks(caller, method, "{}"); strings.Contains(answer, "box") {
				t.Errorf("%s: %s gives %s", caller, method, answer)
			}
		}
	}
	if ann, bob := metrics("ann"), metrics("bob"); ann != http.StatusOK || bob != http.StatusForbidden {
		t.Errorf("ann gets the metrics with %d, bob with %d", ann, bob)
	}
	r.write("tools/rules.yaml", hides)
	r.reload()
	if got := r.sees("eve"); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("eve sees %v again", got)
	}
}

// SPEC-TOOLS 8.4: a rule for a name that only the capsule uses, or that clients had for a tool before the capsule
// got another one, holds for the tool and for its aliases; one for a tool that the capsule does not have closes.
func TestT84RulesHoldForTheCapsulesOwnNames(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no-looking}\nspec: {apply_mode: global, blocked_tools: [look]}\n", "")
	for _, tool := range []string{"box__look", "peek"} {
		if r.mayCall("ann", tool) {
			t.Errorf("%s is called", tool)
		}
	}
	if !r.mayCall("ann", "box__wipe") {
		t.Error("another tool is not called")
	}
	if s := r.orla("call", "box__look", "--config", filepath.Join(r.dir, "orla.yaml"), "--socket", "none"); s.code != 1 || !strings.Contains(s.err, "tool_permission_denied") {
		t.Errorf("orla call without a running Orla ends with %d: %s%s", s.code, s.out, s.err)
	}
	r.write("tools/rules.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no-looking}\nspec: {apply_mode: global, blocked_tools: [peek]}\n")
	r.reload()
	if s := r.orla("call", "box__look", "--config", filepath.Join(r.dir, "orla.yaml"), "--socket", "none"); s.code != 1 || !strings.Contains(s.err, "tool_permission_denied") {
		t.Errorf("a rule for an alias: orla call without a running Orla ends with %d: %s%s", s.code, s.out, s.err)
	}
	r.write("tools/rules.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no-looking}\nspec: {apply_mode: global, blocked_tools: [box__lok]}\n")
	r.reload()
	if r.mayCall("ann", "hello") {
		t.Error("a rule for a tool that the capsule does not have denies nothing")
	}
}

// SPEC-TOOLS 8.3: a rule that names nothing denies every call, and is told with its place; orla can explains.
func TestT83ARuleThatNamesNothingDeniesEveryCall(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, ruledDocuments, "")
	if !r.mayCall("ann", "hello") {
		t.Fatal("ann may not call hello")
	}
	r.write("tools/typo.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: typo}\nspec: {apply_mode: global, blocked_tools: [helo]}\n")
	r.reload()
	r.waitLog("every call is denied: a rule names nothing", func(l map[string]any) bool { // box might have had it
		text, _ := l["err"].(string)
		return strings.Contains(text, "typo.yaml:4:44") && strings.Contains(text, `"helo"`)
	})
	if r.mayCall("ann", "hello") {
		t.Error("a rule that names nothing denies nothing")
	}
	if got := r.mustOrla("status"); !strings.Contains(got, "every call is denied") || !strings.Contains(got, "typo.yaml:4:44") {
		t.Errorf("orla status says\n%s", got)
	}
	if s := r.orla("can", "ann", "hello", "--config", filepath.Join(r.dir, "orla.yaml")); s.code != 1 || !strings.Contains(s.out, "every call is denied") || strings.Count(s.out, "typo.yaml:4:44") != 1 {
		t.Errorf("orla can ends with %d and says\n%s%s", s.code, s.out, s.err)
	}
	if s := r.orla("validate", "--config", filepath.Join(r.dir, "orla.yaml")); strings.Count(s.err, "typo.yaml:4:44") != 1 || !strings.Contains(s.err, "unless a capsule offers it when it runs, every call is denied") {
		t.Errorf("orla validate ends with %d and says\n%s%s", s.code, s.out, s.err)
	}
	r.write("tools/typo.yaml", "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: typo}\nspec: {apply_mode: global, blocked_tools: [hello]}\n")
	r.reload()
	testkit.Eventually(t, "other calls are made again", func() bool { return r.mayCall("ann", "other") })
	if r.mayCall("ann", "hello") {
		t.Error("a blocked tool is called")
	}
	s := r.orla("can", "ann", "hello", "--config", filepath.Join(r.dir, "orla.yaml"))
	if s.code != 1 || !strings.Contains(s.out, "ann may not call hello: the policy typo blocks hello") || !strings.Contains(s.out, "typo.yaml:3:18") {
		t.Errorf("orla can ends with %d and says\n%s%s", s.code, s.out, s.err)
	}
	if s := r.orla("can", "ann", "other", "--config", filepath.Join(r.dir, "orla.yaml")); s.code != 0 || !strings.Contains(s.out, "ann may call other") {
		t.Errorf("orla can ends with %d and says\n%s%s", s.code, s.out, s.err)
	}
}

// SPEC-TOOLS 8.8: the audit log has the rule, the class and the verdict of a call, and of one that is denied.
func TestT88TheAuditLogHasTheRule(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, ruledDocuments, "audit_log: audit.jsonl\ncallers:\n  - {name: ann, roles: [greeter]}\n")
	r.mayCall("ann", "hello")
	r.mayCall("ann", "other")
	r.mayCall("eve", "box__wipe")
	type line struct{ Caller, Tool, Class, Rule, Verdict, Outcome string }
	var got []line
	testkit.Eventually(t, "each call has its line", func() bool { // lines are written a little later
		got = nil
		for _, l := range testkit.LinesOf(t, filepath.Join(r.dir, "audit.jsonl")) {
			text := func(key string) string { s, _ := l[key].(string); return s }
			if text("tool") != "" {
				rule, _, _ := strings.Cut(text("rule"), ",")
				got = append(got, line{text("caller"), text("tool"), text("class"), rule, text("verdict"), text("outcome")})
			}
		}
		return len(got) >= 3
	})
	want := []line{
		{"ann", "hello", "read", "", "allow", "ok"},
		{"ann", "other", "read", "", "deny", "permission_denied"},
		{"eve", "box__wipe", "delete", "ToolPermission box", "deny", "permission_denied"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has %+v, want %+v", got, want)
	}
	if s := r.orla("audit", "verify", filepath.Join(r.dir, "audit.jsonl"), "--config", filepath.Join(r.dir, "orla.yaml")); s.code != 0 {
		t.Errorf("orla audit verify ends with %d: %s%s", s.code, s.out, s.err)
	}
}

// SPEC-TOOLS 8.3: rules do not cease to hold because their folder is gone.
func TestT83AFolderOfRulesThatIsGoneDeniesEveryCall(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, ruledDocuments, "")
	testkit.WriteTool(t, filepath.Join(r.home(), ".orla", "tools"), "mine", "#!/bin/sh\necho mine\n")
	r.reload()
	if !r.mayCall("ann", "mine") {
		t.Fatal("a tool of the user is not called")
	}
	tools := filepath.Join(r.dir, "tools")
	if err := os.Rename(tools, tools+".away"); err != nil {
		t.Fatal(err)
	}
	r.reload()
	if r.mayCall("ann", "mine") {
		t.Error("without their folder, no rule holds")
	}
	if err := os.Rename(tools+".away", tools); err != nil {
		t.Fatal(err)
	}
	r.reload()
	if !r.mayCall("ann", "mine") {
		t.Error("the folder is back, and calls are denied")
	}
}

// SPEC N1: limits of a caller hold for that caller alone.
func TestN1CallersHaveLimits(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, "", "callers:\n  - {name: ann, limits: {calls_per_minute: 2}}\n")
	answers := map[bool]int{}
	for range 4 {
		answers[strings.Contains(r.asks("ann", "tools/call", `{"name":"hello"}`), "rate_limited")]++
	}
	if answers[true] < 2 || answers[false] < 2 {
		t.Errorf("of four calls %d were refused, want two", answers[true])
	}
	if answer := r.asks("bob", "tools/call", `{"name":"hello"}`); strings.Contains(answer, "rate_limited") {
		t.Errorf("bob: %s", answer)
	}
}

// SPEC-TOOLS 8.6: the metrics name all tools, and are not for a caller whose lists leave some out.
func TestT86MetricsAreForCallersWhoSeeAllTools(t *testing.T) {
	t.Parallel()
	r := serveRuled(t, ruledDocuments, "toolsets:\n  - {name: greetings, tools: [hello]}\ncallers:\n  - {name: ann, roles: [greeter]}\n  - {name: bob, toolsets: [greetings]}\n  - {name: eve, limits: {sessions: 9}}\n")
	r.mayCall("eve", "other")
	scrape := func(caller string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(r.url, "/mcp")+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.tokens[caller])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, caller := range []string{"ann", "bob"} {
		if status, text := scrape(caller); status != http.StatusForbidden || strings.Contains(text, "other") {
			t.Errorf("%s gets %d: %.200s", caller, status, text)
		}
	}
	if status, text := scrape("eve"); status != http.StatusOK || !strings.Contains(text, `tool="other"`) {
		t.Errorf("eve gets %d: %.200s", status, text)
	}
	r.configure("")
	r.reload()
	if status, text := scrape("ann"); status != http.StatusOK {
		t.Errorf("without an entry ann gets %d: %.200s", status, text)
	}
}
