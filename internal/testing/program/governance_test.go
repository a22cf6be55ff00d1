package program

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

const permission = "apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: hello}\nspec: {operation_rules: [{verdict: denied}]}\n"

// SPEC-TOOLS 8.3: a governance document with a fault denies
// every call of every caller while it is there, and operators are told its place.
func TestT83AGovernanceDocumentDeniesEveryCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	newPack(t, tools, "pack", "", map[string]string{"answer.py": says("'hi'")})
	policy := testkit.WriteTool(t, tools, "policy.yaml", permission)
	o := serveThere(t, dir)

	o.isDenied("hello", "pack")
	if s := o.orla("call", "hello"); s.code != 1 || !strings.Contains(s.err, "tool_permission_denied") {
		t.Errorf("orla call ends with %d: %s%s", s.code, s.out, s.err)
	}
	if s := o.orla("call", "hello", "--socket", "none"); s.code != 1 || !strings.Contains(s.err, "tool_permission_denied") {
		t.Errorf("orla call without a running Orla ends with %d: %s%s", s.code, s.out, s.err)
	}
	if a, err := o.post("tools/list", "{}"); err != nil || a.Result == nil || len(a.Result.Tools) > 0 {
		t.Errorf("while every call is denied, tools/list gives %+v, %v", a, err)
	}
	place := filepath.Join("tools", "policy.yaml") + ":2:7: "
	if got := o.mustOrla("status"); !strings.Contains(got, "every call is denied") || !strings.Contains(got, place) {
		t.Errorf("orla status says\n%s", got)
	}
	if s := o.orla("validate"); s.code != 4 || !strings.Contains(s.err, place) {
		t.Errorf("orla validate ends with %d and says\n%s", s.code, s.err)
	}
	o.waitLog("every call is denied: a governance document cannot be read or names nothing", func(l map[string]any) bool {
		text, _ := l["err"].(string)
		return strings.Contains(text, place)
	})

	if err := os.Remove(policy); err != nil {
		t.Fatal(err)
	}
	o.waitLog("calls are not denied any more", nil)
	if text, code := o.coded("hello", "{}"); code != "" || text != "hello\n" {
		t.Errorf("without a document: %s: %s", code, text)
	}
	if status, body := o.readyz(); status != http.StatusOK {
		t.Errorf("without a document /readyz is %d: %s", status, body)
	}

	// One that appears denies what is called from then on, wherever it is.
	testkit.WriteTool(t, filepath.Join(o.home(), ".orla", "tools"), "roles.json", `{"kind": "agentrole"}`)
	o.waitReady(http.StatusServiceUnavailable)
	o.isDenied("hello", "pack")
}

// SPEC-TOOLS 8.3: a document denies also where a reload that would find it has a
// configuration with faults.
func TestT83ADocumentDeniesBesideAFaultyConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(dir, "orla.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("auto_reload: false\n")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "hello.sh", "#!/bin/sh\necho hello\n")
	o := serveThere(t, dir)
	if text, code := o.coded("hello", "{}"); code != "" || text != "hello\n" {
		t.Fatalf("without a document: %s: %s", code, text)
	}
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "policy.yaml", permission)
	write("auto_reload: maybe\n")
	if s := o.orla("reload"); s.code == 0 {
		t.Errorf("a reload with a faulty configuration says %s", s.out)
	}
	o.isDenied("hello")
	if got := o.mustOrla("status"); !strings.Contains(got, "every call is denied") {
		t.Errorf("orla status says\n%s", got)
	}
}

// SPEC-TOOLS 8.3: what may be a document and cannot be read denies as well, and
// operators are told its place.
func TestT83WhatCannotBeReadDeniesEveryCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	newPack(t, tools, "pack", "", map[string]string{"answer.py": says("'hi'")})
	o := serveThere(t, dir)
	if text, code := o.coded("hello", "{}"); code != "" || text != "hello\n" {
		t.Fatalf("without a document: %s: %s", code, text)
	}
	for at, appear := range map[string]func(at string) error{
		"policy.yaml":       func(at string) error { return os.Symlink("gone", at) },
		"policy.json":       func(at string) error { return syscall.Mkfifo(at, 0o644) },
		"pack/policies.yml": func(at string) error { return os.Symlink("policies.yml", at) },
		"rules": func(at string) error {
			return os.Symlink(filepath.Dir(testkit.WriteTool(t, t.TempDir(), "a.yaml", permission)), at)
		},
	} {
		at = filepath.Join(tools, at)
		if err := appear(at); err != nil {
			t.Fatal(err)
		}
		o.mustOrla("reload")
		o.isDenied("hello", "pack")
		place, err := filepath.Rel(dir, at)
		if err != nil {
			t.Fatal(err)
		}
		if s := o.orla("validate"); s.code != 4 || !strings.Contains(s.err, place) {
			t.Errorf("%s: orla validate ends with %d and says\n%s", place, s.code, s.err)
		}
		if got := o.mustOrla("status"); !strings.Contains(got, "every call is denied") || !strings.Contains(got, place) {
			t.Errorf("%s: orla status says\n%s", place, got)
		}
		o.waitLog("every call is denied: a governance document cannot be read or names nothing", func(l map[string]any) bool {
			path, _ := l["path"].(string)
			return strings.HasPrefix(path, at)
		})
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		o.mustOrla("reload")
		if text, code := o.coded("hello", "{}"); code != "" || text != "hello\n" {
			t.Errorf("%s is gone: %s: %s", place, code, text)
		}
	}
}

// A document whose folder cannot be read any more is in force until it is known
// to be gone.
func TestT83ADocumentOutOfReachIsInForce(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root reads every folder")
	}
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "hello.sh", "#!/bin/sh\necho hello\n")
	rules := filepath.Join(tools, "rules")
	testkit.WriteTool(t, rules, "policy.yaml", permission)
	o := serveOrla(t, tools)
	o.isDenied("hello")
	if err := os.Chmod(rules, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(rules, 0o755) })
	o.mustOrla("reload")
	o.isDenied("hello")
}

// orla dev serves one tool of a folder whose documents hold for it too.
func TestT83DevDeniesToo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tool := testkit.WriteTool(t, filepath.Join(dir, "tools"), "hello.sh", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "policy.yaml", permission)
	o := startAs(t, t.TempDir(), dir, orlaBinary(t), "dev", tool, "--log-format", "json", "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.isDenied("hello")
}

// isDenied calls tools, all of which must be denied.
func (o *running) isDenied(tools ...string) {
	o.t.Helper()
	for _, tool := range tools {
		text, code := o.coded(tool, "{}")
		if code != "permission_denied" || !strings.Contains(text, "tool_permission_denied") || !strings.Contains(text, "every call is denied") {
			o.t.Errorf("%s is not denied: %s: %s", tool, code, text)
		}
		for _, leak := range []string{"policy", "/", "hello"} {
			if strings.Contains(text, leak) {
				o.t.Errorf("%s tells of %q: %s", tool, leak, text)
			}
		}
	}
	if status, body := o.readyz(); status != http.StatusServiceUnavailable || !strings.Contains(body, `"denied"`) {
		o.t.Errorf("/readyz is %d: %s", status, body)
	}
}

// waitReady waits until /readyz answers so.
func (o *running) waitReady(want int) {
	o.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, body := o.readyz()
		if status == want {
			return
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("/readyz stays %d: %s", status, body)
		}
	}
}

// SPEC-TOOLS 8.3: rules behind a link in the tools folder, or in a tools folder, that is away for a while deny every call, also
// after a restart, until they are back or it is plain that there are to be none.
func TestT83RulesThatAreAwayDenyEveryCall(t *testing.T) {
	t.Parallel()
	dir, home := t.TempDir(), t.TempDir()
	tools, rules, away := filepath.Join(dir, "tools"), filepath.Join(dir, "rules"), filepath.Join(dir, "away")
	const policy = "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no}\nspec: {apply_mode: global, blocked_tools: [other]}\n"
	testkit.WriteTool(t, filepath.Join(home, ".orla", "tools"), "hello", "#!/bin/sh\necho hello\n")
	testkit.WriteTool(t, filepath.Join(home, ".orla", "tools"), "other", "#!/bin/sh\necho other\n")
	testkit.WriteTool(t, rules, "policy.yaml", policy)
	testkit.WriteTool(t, dir, "orla.yaml", "audit_log: audit.log\nstate_dir: state\n")
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	link("../rules", filepath.Join(tools, "rules"))
	link("nothing", filepath.Join(tools, "dangling")) // never had a rule
	start := func() *running {
		t.Helper()
		o := startAs(t, home, dir, orlaBinary(t), "--port", "0", "--log-format", "json")
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
		return o
	}
	opens := func(o *running, when string) {
		t.Helper()
		o.mustOrla("reload")
		if text, code := o.coded("hello", "{}"); code != "" || text != "hello\n" {
			t.Errorf("%s: %s: %s", when, code, text)
		}
	}
	blocked := func(o *running) {
		t.Helper()
		if text, code := o.coded("other", "{}"); code != "permission_denied" {
			t.Errorf("a call that the rules block: %s: %s", code, text)
		}
	}
	o := start()
	opens(o, "at first")
	blocked(o)

	move(rules, away)
	o.mustOrla("reload")
	o.isDenied("hello", "other")
	if s := o.orla("validate"); s.code != 4 || strings.Count(s.err, "there were rules behind it; every call is denied") != 1 {
		t.Errorf("orla validate ends with %d and says\n%s%s", s.code, s.out, s.err)
	}
	if got := o.mustOrla("status"); !strings.Contains(got, filepath.Join("tools", "rules")+": is a link to something that does not exist, and there were rules behind it") {
		t.Errorf("orla status says\n%s", got)
	}
	o.signal(syscall.SIGTERM)
	_ = o.wait()
	o = start()
	o.isDenied("hello", "other")
	move(away, rules)
	opens(o, "the rules are back")
	blocked(o)

	for name, replace := range map[string]func(){
		"away":             func() {},
		"a link":           func() { link("nothing", tools) },
		"a file":           func() { testkit.WriteTool(t, dir, "tools", "") },
		"away, at a start": func() { o.signal(syscall.SIGTERM); _ = o.wait(); o = start() },
	} {
		move(tools, away)
		replace()
		if !strings.HasSuffix(name, "start") {
			o.orla("reload")
		}
		o.isDenied("hello", "other")
		_ = os.Remove(tools)
		move(away, tools)
		opens(o, name)
		blocked(o)
	}

	move(rules, away)
	o.mustOrla("reload")
	o.isDenied("hello")
	if err := os.Remove(filepath.Join(tools, "rules")); err != nil {
		t.Fatal(err)
	}
	o.mustOrla("reload")
	o.isDenied("hello", "other")
	if got := o.mustOrla("status"); !strings.Contains(got, "had rules, in "+filepath.Join(tools, "rules", "policy.yaml")) || !strings.Contains(got, "orla reload --accept-no-rules") {
		t.Errorf("orla status says\n%s", got)
	}
	testkit.WriteTool(t, dir, "orla.yaml", "state_dir: state\nport: nonsense\n")
	if s := o.orla("reload", "--accept-no-rules"); s.code != 4 {
		t.Errorf("with a faulty configuration it ends with %d: %s%s", s.code, s.out, s.err)
	}
	o.isDenied("hello", "other") // it has changed nothing
	testkit.WriteTool(t, dir, "orla.yaml", "audit_log: audit.log\nstate_dir: state\n")
	o.mustOrla("reload", "--accept-no-rules")
	o.waitLog("governance documents that are gone are to be gone", func(l map[string]any) bool { return strings.HasPrefix(l["by"].(string), "user:") })
	o.mustOrla("reload", "--accept-no-rules") // nothing is gone
	var lines []string
	testkit.Eventually(t, "the line of the acceptance", func() bool {
		lines = regexp.MustCompile(`"event":"rules","decider":"user:[^"]*","target":"[^"]*","reason":"[^"]*"`).FindAllString(testkit.ReadFile(t, filepath.Join(dir, "audit.log")), -1)
		return len(lines) > 0
	})
	if len(lines) != 1 || !strings.HasSuffix(lines[0], `"target":"`+tools+`","reason":"had rules, in `+filepath.Join(tools, "rules", "policy.yaml")+`, and has none now"`) {
		t.Errorf("the audit log has %q", lines)
	}
	if got := o.mustOrla("audit", "show"); !regexp.MustCompile(`user:\S+  accepted that rules are gone  target=` + tools + `  reason=had rules, in`).MatchString(got) {
		t.Errorf("orla audit show says\n%s", got)
	}
	if got := o.mustOrla("audit", "verify"); !strings.Contains(got, "ok ") {
		t.Errorf("orla audit verify says\n%s", got)
	}
	opens(o, "without the rules")
	if text, code := o.coded("other", "{}"); code != "" || text != "other\n" {
		t.Errorf("without the rules: %s: %s", code, text)
	}
}
