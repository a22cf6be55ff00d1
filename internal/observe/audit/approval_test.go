package audit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/observe/audit"
)

// SPEC-TOOLS 8.7, 8.8: a decision about a call has a line, with the hash of the arguments that a call of them has.
func TestT88ADecisionHasALine(t *testing.T) {
	p := newPlace(t)
	l := p.open(t)
	call := callOf(1)
	l.Record(call)
	l.RecordApproval(&audit.Approval{
		ID: "ap-1", Caller: "ci", Agent: "bot", Tool: "hello1", Class: "delete", Rule: "ToolPermission hello", Phase: "Denied", Decider: "user:root(0)",
		How: "operator", Reason: strings.Repeat("no ", 1000), Proof: []byte(`{"a":1}`), Args: call.Args,
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
	proof := sha256.Sum256([]byte(`{"a":1}`))
	for key, want := range map[string]any{
		"event": "approval", "approval": "ap-1", "caller": "ci", "agent": "bot", "tool": "hello1", "class": "delete", "rule": "ToolPermission hello",
		"phase": "Denied", "decider": "user:root(0)", "how": "operator", "args_sha256": lines[0]["args_sha256"], "proof_sha256": hex.EncodeToString(proof[:]),
	} {
		if a[key] != want {
			t.Errorf("%s is %v; want %v", key, a[key], want)
		}
	}
	if reason, _ := a["reason"].(string); len(reason) > 300 || !strings.HasPrefix(reason, "no no") {
		t.Errorf("the reason is %q", reason)
	}
	if text := string(text); strings.Contains(text, `{"a":1}`) {
		t.Errorf("it has the proof: %s", text)
	}
}
