package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Approval is what became of a call that needs an approval.
type Approval struct {
	ID     string // of the record
	Caller string
	Agent  string // whom the caller acts for
	Tool   string
	Class  string // of the operation
	Rule   string // that wants the approval
	Phase  string // that it is in now
	Change string // what became of it: decided, extended, timed_out or withdrawn
	ApprovalDecision
	ApprovalExtension
	Reason string // of a denial, or of an end
	Args   []byte // the arguments, valid JSON; nil to leave them out
}

// ApprovalExtension says for how long an approval waits, or is good.
type ApprovalExtension struct {
	Until      time.Time // zero to leave it out
	ExtendedBy string    // who has changed it
}

// ApprovalDecision is who has decided, and with what.
type ApprovalDecision struct {
	Decider string
	How     string
	Proof   []byte // of a passkey: a passkey.Proof as JSON; nil for none
}

// RecordApproval appends a line, as Record does that of a call. A nil Log ignores it.
func (l *Log) RecordApproval(a *Approval) {
	if l == nil {
		return
	}
	l.append(func(out []byte, in *rawjson.Canonicalizer) []byte {
		return a.appendTo(out, time.Now(), l.full.Load(), in)
	})
}

// appendTo appends what follows seq and prev in the line.
func (a *Approval) appendTo(out []byte, now time.Time, full bool, in *rawjson.Canonicalizer) []byte {
	out = appendBegin(out, now, eventApproval)
	until := ""
	if !a.Until.IsZero() {
		until = a.Until.UTC().Format(time.RFC3339)
	}
	for _, m := range [...]struct{ key, text string }{
		{`,"approval":`, a.ID},
		{`,"caller":`, a.Caller},
		{`,"agent":`, a.Agent},
		{`,"tool":`, a.Tool},
		{`,"class":`, a.Class},
		{`,"rule":`, a.Rule},
		{`,"phase":`, a.Phase},
		{`,"change":`, a.Change},
		{`,"decider":`, a.Decider},
		{`,"how":`, a.How},
		{`,"extended_by":`, a.ExtendedBy},
		{`,"until":`, until},
		{`,"reason":`, a.Reason},
	} {
		if m.text != "" {
			out = appendText(append(out, m.key...), cut(m.text))
		}
	}
	if a.Proof != nil && len(a.Proof) <= maxProof {
		out = append(append(out, `,"proof":`...), a.Proof...)
	}
	if a.Args == nil {
		return append(out, '}')
	}
	return append(appendArguments(out, a.Args, full, in), '}')
}
