package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// NoRules is a place whose rules are gone, which an operator has accepted (SPEC-TOOLS 8.3).
type NoRules struct {
	By  string // who accepted it
	At  string // the file or the folder
	Why string // what has become of the rules
}

// RecordNoRules appends a line, as Record does that of a call. A nil Log ignores it.
func (l *Log) RecordNoRules(n *NoRules) {
	if l == nil {
		return
	}
	l.append(func(out []byte, _ *rawjson.Canonicalizer) []byte {
		out = appendBegin(out, time.Now(), eventRules)
		out = appendText(append(out, `,"decider":`...), cut(n.By))
		out = appendText(append(out, `,"target":`...), cut(n.At))
		out = appendText(append(out, `,"reason":`...), cut(n.Why))
		return append(out, '}')
	})
}
