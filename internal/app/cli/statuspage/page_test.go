package statuspage

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
)

// However long the names and large the numbers, the table fits.
func TestJ1TheTableFits(t *testing.T) {
	now := time.Now()
	var tools []control.ToolStatus
	for i := range 20 {
		tools = append(tools, control.ToolStatus{
			Name: strings.Repeat("long-name-", 6) + fmt.Sprint(i), Kind: "capsule", State: "RELOADING", Since: now.Add(-99*24*time.Hour - 23*time.Hour),
			Pid: 4194304, Restarts: 99999, Calls: 9999999, Errors: 9999999, P50: 999.9, P99: 99999,
			Memory: 999 << 30, CPU: 99 * 24 * 3600, Reason: strings.Repeat("because ", 40), Failures: 7, Next: now.Add(time.Hour),
		})
	}
	p := &page{width: terminal.TableWidth, now: now}
	p.table(tools)
	for line := range strings.Lines(p.text.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > terminal.TableWidth {
			t.Errorf("%d characters: %s", n, line)
		}
	}
}

// SPEC J1: the summary counts every tool, capsules first and then the others by their kinds.
func TestJ1TheSummaryCountsEveryTool(t *testing.T) {
	tools := []control.ToolStatus{{Kind: "wasm"}, {Kind: "simple"}, {Kind: "capsule", State: "CRASHED"}, {Kind: "http"}, {Kind: "capsule", State: "READY"}, {Kind: "http"}}
	if got, want := Summary(tools), "6 tools: 1 READY, 1 CRASHED, 1 simple, 2 http, 1 wasm"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// SPEC J1: each line of a problem counts, and the command that shows more names the folder.
func TestJ1EachProblemIsCounted(t *testing.T) {
	s := &control.Status{ToolsDir: "/srv/tools", Problems: []control.Problem{{Severity: "error", Path: "a.yaml", Messages: []string{"one", "two"}}, {Severity: "warning", Path: "b", Messages: []string{"three"}}}}
	if got := Status(s, Style{Width: terminal.TableWidth}); !strings.Contains(got, "\n3 problems; orla validate --tools-dir /srv/tools shows those of files too:\n") {
		t.Error(got)
	}
}

// SPEC N1: of 1000 callers the page shows those that use something first, and says how many there are. However long the
// names are, the numbers are seen.
func TestN1ThePageOfManyCallers(t *testing.T) {
	tools := 7
	var all []control.CallerStatus
	for i := range 1000 {
		all = append(all, control.CallerStatus{Name: fmt.Sprintf("oauth:%s%d", strings.Repeat("long-", 12), i), Roles: []string{"reader", strings.Repeat("writer", 20)}, Tools: &tools, Limits: control.CallerLimits{Sessions: 20}})
	}
	all[999] = control.CallerStatus{Name: "bo\x1bb", Sessions: 3, KeptBytes: 5 << 20, Limits: control.CallerLimits{Sessions: 4, CallsInFlight: 2, CallsPerMinute: 60}}
	all[998] = control.CallerStatus{Group: "staff", Tools: &tools, Limits: control.CallerLimits{Subscriptions: 9, KeptMemory: 1 << 20}}
	p := &page{width: terminal.TableWidth, now: time.Now()}
	p.callers(all)
	lines := strings.Split(strings.TrimSpace(p.text.String()), "\n")
	if len(lines) != shownCallers+3 || !strings.Contains(lines[len(lines)-1], "and 950 more") || !strings.HasPrefix(lines[0], "1000 callers") {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > terminal.TableWidth || strings.Contains(line, "\x1b") {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	for i, want := range [][]string{2: {"-", "0/2", "3/4", "0", "5.0M", "60 calls a minute"}, 3: {"7", "0", "0/20", "0", "-", "roles reader"}} {
		if got := strings.Join(strings.Fields(lines[i]), " "); want != nil && !strings.Contains(got, strings.Join(want, " ")) {
			t.Errorf("%q has not %v", got, want)
		}
	}
	p = &page{width: terminal.TableWidth}
	p.callers(all[998:])
	if got := p.text.String(); !strings.Contains(got, "group staff") || !strings.Contains(got, "-/9") || !strings.Contains(got, "-/1.0M") {
		t.Error(got)
	}
}
