package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Arguments says that an operator has the arguments of calls of a tool kept, or not any more (SPEC O2).
type Arguments struct {
	By    string
	Tool  string    // as clients name it
	Until time.Time // zero if they are not kept any more
}

// RecordArguments appends a line, as Record does that of a call. A nil Log ignores it.
func (l *Log) RecordArguments(a *Arguments) {
	if l == nil {
		return
	}
	l.append(func(out []byte, _ *rawjson.Canonicalizer) []byte {
		out = appendBegin(out, time.Now(), eventArguments)
		out = appendText(append(out, `,"decider":`...), cut(a.By))
		out = appendText(append(out, `,"tool":`...), cut(a.Tool))
		if a.Until.IsZero() {
			return append(out, `,"change":"forgotten"}`...)
		}
		out = append(out, `,"change":"kept","until":"`...)
		return append(a.Until.UTC().AppendFormat(out, time.RFC3339), `"}`...)
	})
}
