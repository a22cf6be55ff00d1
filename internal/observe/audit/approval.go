package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// Approval is what somebody has decided about a call that needs an approval.
type Approval struct {
	ID      string // of the record
	Caller  string
	Agent   string // whom the caller acts for
	Tool    string
	Class   string // of the operation
	Rule    string // that wants the approval
	Phase   string // what was decided
	Decider string
	How     string // with what the decider has decided
	Reason  string // of a denial
	Proof   []byte // of a passkey; nil for none
	Args    []byte // the arguments that are approved, valid JSON
}

// RecordApproval appends the line of a decision, as Record does that of a call. A nil Log ignores it.
func (l *Log) RecordApproval(a *Approval) {
	if l == nil {
		return
	}
	l.append(func(out []byte, in *rawjson.Canonicalizer) []byte {
		return a.appendTo(out, time.Now(), l.full.Load(), in)
	})
}

// appendTo appends what follows seq and prev in the line of a decision.
func (a *Approval) appendTo(out []byte, now time.Time, full bool, in *rawjson.Canonicalizer) []byte {
	out = appendBegin(out, now, eventApproval)
	proof := ""
	if a.Proof != nil {
		sum := sha256.Sum256(a.Proof)
		proof = hex.EncodeToString(sum[:])
	}
	for _, m := range [...]struct{ key, text string }{
		{`,"approval":`, a.ID},
		{`,"caller":`, a.Caller},
		{`,"agent":`, a.Agent},
		{`,"tool":`, a.Tool},
		{`,"class":`, a.Class},
		{`,"rule":`, a.Rule},
		{`,"phase":`, a.Phase},
		{`,"decider":`, a.Decider},
		{`,"how":`, a.How},
		{`,"reason":`, a.Reason},
		{`,"proof_sha256":`, proof},
	} {
		if m.text != "" {
			out = appendText(append(out, m.key...), brief.Cut(m.text, maxText))
		}
	}
	return append(appendArguments(out, a.Args, full, in), '}')
}
