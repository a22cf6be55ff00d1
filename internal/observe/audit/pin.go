package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Pin is a definition of a tool or a prompt that an operator has accepted (SPEC N4).
type Pin struct {
	By       string // who accepted it
	Provider string // the name of the manifest
	Kind     string // tool or prompt
	Name     string // for clients
	Digest   string // of the definition
}

// RecordPin appends a line, as Record does that of a call. A nil Log ignores it.
func (l *Log) RecordPin(p *Pin) {
	if l == nil {
		return
	}
	l.append(func(out []byte, _ *rawjson.Canonicalizer) []byte {
		out = appendBegin(out, time.Now(), eventPin)
		for _, m := range [...]struct{ key, text string }{
			{`,"decider":`, p.By}, {`,"target":`, p.Provider}, {`,"kind":`, p.Kind}, {`,"tool":`, p.Name}, {`,"digest":`, p.Digest},
		} {
			out = appendText(append(out, m.key...), cut(m.text))
		}
		return append(out, '}')
	})
}
