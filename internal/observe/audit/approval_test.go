package audit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/audit"
)

// SPEC-TOOLS 8.7, 8.8: a decision about a call has a line, with the hash of the arguments that a call of them has.
func TestT88ADecisionHasALine(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	call := callOf(1)
	l.Record(call)
	l.RecordApproval(&audit.Approval{
		ID: "ap-1", Caller: "ci", Agent: "bot", Tool: "hello1", Class: "delete", Rule: "ToolPermission hello", Phase: "Denied", Change: "decided",
		ApprovalDecision: audit.ApprovalDecision{Decider: "user:root(0)", How: "operator"}, Reason: strings.Repeat("no ", 1000), Args: call.Args,
	})
	l.Close()
	(*audit.Log)(nil).RecordApproval(&audit.Approval{})
	text := p.read(t)
	if r := p.mustBeOK(t, text); r.Calls != 1 {
		t.Errorf("%d calls", r.Calls)
	}
	var lines []map[string]any
	shown := 0
	_, err := audit.Selection{Caller: "ci"}.Show(t.Context(), strings.NewReader(string(text)), func(l *audit.Line, raw []byte) error {
		shown++
		var members map[string]any
		if err := json.Unmarshal(raw, &members); err != nil {
			return err
		}
		lines = append(lines, members)
		if l.IsApproval() != (shown == 2) {
			t.Errorf("line %d is the wrong one: %s", shown, raw)
		}
		return nil
	})
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d lines, %v:\n%s", len(lines), err, text)
	}
	a := lines[1]
	for key, want := range map[string]any{
		"event": "approval", "approval": "ap-1", "caller": "ci", "agent": "bot", "tool": "hello1", "class": "delete", "rule": "ToolPermission hello",
		"phase": "Denied", "decider": "user:root(0)", "how": "operator", "args_sha256": lines[0]["args_sha256"],
	} {
		if a[key] != want {
			t.Errorf("%s is %v; want %v", key, a[key], want)
		}
	}
	if reason, _ := a["reason"].(string); len(reason) > 400 || !strings.HasPrefix(reason, "no no") {
		t.Errorf("the reason is %q", reason)
	}
}

// SPEC-TOOLS 8.8: who has extended an approval, and that one has ended, have lines.
func TestT88WhatBecameOfAnApprovalHasALine(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	until := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	l.RecordApproval(&audit.Approval{
		ID: "ap-1", Caller: "ci", Phase: "Approved", Change: "extended", ApprovalDecision: audit.ApprovalDecision{Decider: "user:root(0)"},
		ApprovalExtension: audit.ApprovalExtension{Until: until, ExtendedBy: "user:ada(1000)"},
	})
	l.RecordApproval(&audit.Approval{ID: "ap-1", Caller: "ci", Phase: "Expired", Change: "withdrawn", Reason: "the rules have changed"})
	l.Close()
	text := string(p.read(t))
	p.mustBeOK(t, []byte(text))
	for _, part := range []string{
		`"phase":"Approved","change":"extended","decider":"user:root(0)","extended_by":"user:ada(1000)","until":"2026-11-26T12:00:00Z"}`,
		`"approval":"ap-1","caller":"ci","phase":"Expired","change":"withdrawn","reason":"the rules have changed"}`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in the log:\n%s", part, text)
		}
	}
}
