package audit

import (
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Request is a request other than a call that has ended: one that reads a resource, gets a prompt, completes something or follows a
// resource.
type Request struct {
	Method string
	URI    string // of the resource, or of its template
	Prompt string // its name
	Caller string
	Acting
	peer.Noted
	Outcome string // OK, InputRequired, or the code of the error
	Took    time.Duration
	Trace   string // the id of the trace; "" for none
	Args    []byte // as Call.Args; nil for what has none
	Input   []byte // as Call.Input
}

// RecordRequest appends a line, as Record does that of a call.
func (l *Log) RecordRequest(r *Request) {
	ended, full := time.Now(), l.full.Load()
	l.append(func(out []byte, in *rawjson.Canonicalizer) []byte {
		out = appendBegin(out, ended, eventRequest)
		for _, m := range [...]struct{ key, text string }{
			{`,"caller":`, r.Caller},
			{`,"agent":`, r.Agent},
			{`,"task":`, r.Task},
			{`,"method":`, r.Method},
			{`,"uri":`, r.URI},
			{`,"prompt":`, r.Prompt},
			{`,"target":`, r.Target},
			{`,"class":`, r.Class},
			{`,"rule":`, r.Rule},
			{`,"verdict":`, r.Verdict},
			{`,"outcome":`, r.Outcome},
			{`,"trace_id":`, r.Trace},
		} {
			out = appendMember(out, m.key, m.text)
		}
		out = appendMillis(append(out, `,"duration_ms":`...), r.Took.Microseconds())
		if r.Input != nil {
			out = appendInput(out, r.Input, in)
		}
		if r.Args != nil {
			out = appendArguments(out, r.Args, full, in)
		}
		return append(out, '}')
	})
}
