package program

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// counted are the metrics of Orla that count, but for those of processes.
var counted = regexp.MustCompile(`(?m)^orla_(calls_total|call_|request_|response_|reloads_|approval|log_|capsule_restarts).*$`)

// counters returns what /metrics counts.
func (o *running) counters() []string {
	o.t.Helper()
	resp, err := http.Get(strings.TrimSuffix(o.url, "/mcp") + "/metrics")
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return counted.FindAllString(string(text), -1)
}

// SPEC Q1: counters and history go on over upgrades: metrics, the numbers of the status, restarts of capsules with and
// without a process, and what the log said.
func TestQ1CountersAndHistoryGoOnOverUpgrades(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	kept := newPack(t, tools, "kept", "restart: {initial_ms: 10, max_ms: 50}", map[string]string{"answer.py": counts})
	newPack(t, tools, "held", "", map[string]string{"answer.py": counts})
	testkit.WriteTool(t, tools, "fails", "#!/bin/sh\nexit 3\n")
	u := serveUpgradable(t, checkedBinary(t), tools, "")
	u.waitListed("held")
	u.waitListed("kept")
	for _, pid := range kept.pids() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "kept is started again", func() bool { return u.toolStatus("kept").Restarts == 1 && u.toolStatus("kept").State == "READY" })
	for _, action := range []control.Action{control.Restart, control.Stop} {
		if _, err := u.control.Operate(t.Context(), "held", action); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		u.mustCall("kept")
		u.coded("fails", "{}")
	}
	if _, err := u.control.Reload(t.Context(), control.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
	was, logged := u.counters(), strings.Split(u.mustOrla("logs", "-n", "-1"), "\n")
	before := map[string]*control.ToolStatus{}
	for _, name := range []string{"kept", "held", "fails"} {
		s := u.toolStatus(name)
		before[name] = &s
	}
	if len(was) < 30 || len(logged) < 20 || before["held"].Restarts != 1 {
		t.Fatalf("there are %d counters, %d lines, and %d restarts of held", len(was), len(logged), before["held"].Restarts)
	}
	for range 2 {
		u.upgrade()
		is := map[string]bool{}
		for _, line := range u.counters() {
			is[line] = true
		}
		for _, line := range was {
			if !is[line] {
				t.Errorf("after an upgrade, %q is not counted any more", line)
			}
		}
		for name, s := range before {
			if now := u.toolStatus(name); now.Calls != s.Calls || now.Errors != s.Errors || now.Restarts != s.Restarts || (s.Calls > 0) != (now.P50 > 0) {
				t.Errorf("the status of %s is %+v; it was %+v", name, now, s)
			}
		}
		if now := strings.Split(u.mustOrla("logs", "-n", "-1"), "\n"); !strings.HasPrefix(strings.Join(now, "\n"), strings.Join(logged[:len(logged)-1], "\n")) {
			t.Errorf("the log is\n%s\nit was\n%s", strings.Join(now, "\n"), strings.Join(logged, "\n"))
		}
	}
	if n := u.count("the history or the counters are not kept", nil); n > 0 {
		t.Errorf("%d times something was not kept", n)
	}
}
