package program

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/arguments"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// kept returns the arguments that a visitor of the page sees.
func (g *outsider) kept() (list []arguments.KeptCall) {
	g.o.t.Helper()
	status, text, _ := g.ask("GET", "/api/v1/arguments", "")
	var kept arguments.KeptCalls
	if status != http.StatusOK || json.Unmarshal([]byte(text), &kept) != nil {
		g.o.t.Fatalf("%d %s", status, text)
	}
	return kept.Calls
}

// SPEC O2: an operator has the arguments of calls of one tool kept, and sees those of other callers, without secrets; a viewer
// and an approver do not. They are in no file and in no log, the audit log and the log say who has asked, orla status says that
// it is on, and an upgrade forgets them.
func TestO2ArgumentsOfCalls(t *testing.T) {
	t.Parallel()
	names := []string{"vera", "otto", "anna"}
	config := "allowed_hosts: [orla.example.com]\nauth:\n  tokens:\n"
	for _, name := range names {
		config += fmt.Sprintf("    - {name: %s, file: %s.token}\n", name, name)
	}
	a := prepareAsking(t, names, config+"callers:\n  - {name: vera, console: [viewer]}\n  - {name: otto, console: [operator]}\n  - {name: anna, console: [approver]}\n")
	for _, name := range []string{"note", "other"} {
		testkit.WriteTool(t, filepath.Join(a.dir, "tools"), name, "#!/bin/sh\necho noted\n")
	}
	enter := func(name string) *outsider {
		g := &outsider{o: a.running, host: "orla.example.com", origin: "https://orla.example.com"}
		if status, text := g.enter(tokenOf(name)); status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, status, text)
		}
		return g
	}
	call := func(tool, args string) {
		t.Helper()
		testkit.Eventually(t, tool+" is served", func() bool { return a.orla("call", tool, "--json", args, "--socket", a.socket).code == 0 })
	}
	call("note", `{"plant":"plant-before"}`)
	call("other", "{}")
	vera, otto, anna := enter("vera"), enter("otto"), enter("anna")
	const on, off = `{"keep":true}`, `{"keep":false}`
	for _, c := range []struct {
		who        *outsider
		path, body string
		want       int
	}{
		{vera, "/api/v1/tools/note/arguments", on, 403},
		{anna, "/api/v1/tools/note/arguments", on, 403},
		{otto, "/api/v1/tools/absent/arguments", on, 404},
		{otto, "/api/v1/tools/note/arguments", on, 200},
		{vera, "/api/v1/tools/note/arguments", off, 403},
		{vera, "/api/v1/arguments", "", 403},
		{anna, "/api/v1/arguments?after=0", "", 403},
		{vera, "/api/v1/%61rguments", "", 403},
	} {
		method := "GET"
		if c.body != "" {
			method = "POST"
		}
		if status, text, _ := c.who.ask(method, c.path, c.body); status != c.want {
			t.Errorf("%s %s: %d %s, want %d", method, c.path, status, text, c.want)
		}
	}
	call("note", `{"plant": "plant-during", "big":9007199254740993, "token":"`+tokenOf("anna")+`"}`)
	call("other", `{"plant":"plant-other"}`)
	if got := otto.kept(); len(got) != 1 || got[0].Tool != "note" || got[0].Caller != "cli" || got[0].Arguments != `{"plant":"plant-during","big":9007199254740993,"token":"[redacted]"}` {
		t.Errorf("%+v", got)
	} else if line := a.waitLog("call", func(l map[string]any) bool { return l["call_id"] == got[0].ID }); line["tool"] != "note" {
		t.Errorf("the call_id is that of %v", line)
	}
	if text := a.mustOrla("status", "--socket", a.socket); !strings.Contains(text, "arguments of note are kept for 9m") || !strings.Contains(text, "asked for by otto") {
		t.Errorf("orla status says:\n%s", text)
	}
	if line := a.waitLog("arguments of calls are kept", nil); line["by"] != "otto" || line["tool"] != "note" {
		t.Errorf("the log says %v", line)
	}
	if text := a.mustOrla("audit", "show", "--config", filepath.Join(a.dir, "orla.yaml"), "--tool", "note"); !strings.Contains(text, "otto  note  arguments kept  until=") {
		t.Errorf("orla audit show says:\n%s", text)
	}
	a.mustOrla("audit", "verify", "--config", filepath.Join(a.dir, "orla.yaml"))

	if status, text, _ := otto.ask("POST", "/api/v1/tools/note/arguments", off); status != http.StatusOK {
		t.Errorf("off: %d %s", status, text)
	}
	if got := otto.kept(); len(got) != 0 {
		t.Errorf("after it is off: %+v", got)
	}
	if status, text, _ := otto.ask("POST", "/api/v1/tools/note/arguments", on); status != http.StatusOK {
		t.Fatalf("on again: %d %s", status, text)
	}
	call("note", `{"plant":"plant-last"}`)
	if got := otto.kept(); len(got) != 1 {
		t.Errorf("on again: %+v", got)
	}
	searched := 0
	if err := filepath.WalkDir(a.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if searched++; strings.Contains(string(text), "plant-") {
			t.Errorf("%s has arguments", path)
		}
		return err
	}); err != nil || searched < 5 {
		t.Error(searched, err)
	}
	if text := a.mustOrla("logs", "--socket", a.socket, "-n", "-1"); strings.Contains(text, "plant-") || !strings.Contains(text, "arguments of calls are kept") {
		t.Errorf("the log has\n%s", text)
	}

	file, token := filepath.Join(a.dir, "anna.token"), tokenOf("anna")
	testkit.WriteTool(t, a.dir, "anna.token", "another-token-of-anna\n")
	if status, text, _ := otto.ask("POST", "/api/v1/tools/note/arguments", on); status == http.StatusOK || !strings.Contains(text, "orla reload") {
		t.Errorf("while the token that is accepted is in no file: %d %s", status, text)
	}
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	a.mustOrla("upgrade", "--socket", a.socket)
	testkit.Eventually(t, "an upgrade forgets them", func() bool {
		return !strings.Contains(a.orla("status", "--socket", a.socket).out, "arguments of")
	})
	if text := a.mustOrla("logs", "--socket", a.socket, "-n", "-1"); strings.Contains(text, "plant-") {
		t.Errorf("after an upgrade the log has\n%s", text)
	}
}
