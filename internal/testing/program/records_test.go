package program

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// O2: the numbers, the audit log and the packages that the page shows are those of orla status, orla audit verify and
// orla.lock.
func TestO2NumbersAuditAndPackages(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	newPack(t, tools, "cap", "", map[string]string{"answer.py": says(`{"content": [{"type": "text", "text": "here"}]}`)})
	o := serveCapsules(t, tools, "audit_log: audit.log\nstate_dir: state\n")
	o.waitLog("state", is("cap", "READY"))
	v := o.visit()
	for range 3 {
		o.mustCall("cap")
	}
	var numbers control.Numbers
	var page control.AuditLog
	var report control.AuditReport
	var packages control.Packages
	read := func(method, path string, into any) {
		t.Helper()
		status, body := v.ask(method, "/api"+path, "{}")
		if err := json.Unmarshal([]byte(body), into); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", path, status, body)
		}
	}
	read("GET", "/v1/numbers", &numbers)
	if len(numbers.Tools) != 1 || numbers.Tools[0].Name != "cap" {
		t.Fatalf("numbers of tools: %+v", numbers.Tools)
	}
	calls, memory := int64(0), int64(0)
	for _, s := range numbers.Samples {
		calls += s.Calls
		memory = max(memory, s.Memory)
	}
	inMinutes := int64(0)
	for _, s := range numbers.Tools[0].Samples {
		inMinutes += s.Calls
	}
	if calls != 3 || inMinutes != 3 || memory < 1<<20 || time.Since(numbers.Now) > time.Minute {
		t.Errorf("%d calls, %d of the tool, %d bytes: %+v", calls, inMinutes, memory, numbers)
	}
	testkit.Eventually(t, "the calls are in the audit log", func() bool {
		read("GET", "/v1/audit?n=3", &page)
		return len(page.Lines) == 3 && page.Lines[2].Event == "call" && page.Lines[0].Event == "call"
	})
	if l := page.Lines[2]; l.Tool != "cap" || l.Outcome != "ok" || !strings.HasSuffix(page.Path, "audit.log") {
		t.Errorf("the last line: %+v of %s", l, page.Path)
	}
	read("POST", "/v1/audit/verify", &report)
	if !report.Whole || report.Calls != 3 {
		t.Errorf("the chain: %+v", report)
	}
	text, err := os.ReadFile(page.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page.Path, []byte(strings.Replace(string(text), `"tool":"cap"`, `"tool":"cup"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	read("POST", "/v1/audit/verify", &report)
	if report.Whole || len(report.Findings) == 0 {
		t.Errorf("after a change: %+v", report)
	}
	if err := os.WriteFile(page.Path, text, 0o600); err != nil { // its end is signed when Orla stops
		t.Fatal(err)
	}
	read("GET", "/v1/packages", &packages)
	if len(packages.Packages) != 0 || len(packages.Locks) == 0 {
		t.Errorf("packages: %+v", packages)
	}
	const lock = "version: 1\npackages:\n  - name: a\n    version: 1.0.0\n    source: {kind: local, url: /x}\n    digest: h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n    permissions: ['env:HOME']\n"
	for content, want := range map[string]int{lock: 1, "version: 9\n": 0} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(page.Path), "orla.lock"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		packages = control.Packages{}
		read("GET", "/v1/packages", &packages)
		if len(packages.Packages) != want || want == 1 && (!packages.Packages[0].Serves || packages.Packages[0].Permissions[0] != "env:HOME") || want == 0 && packages.Locks[0].Error == "" {
			t.Errorf("packages of %q: %+v", content, packages)
		}
	}
	o.signal(syscall.SIGTERM)
	o.wait()
}
