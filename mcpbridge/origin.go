package mcpbridge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// origin is where a call came from.
type origin struct {
	caller    string // the authenticated subject, else the transport
	subject   string // the authenticated subject; "" without authentication
	session   string // its id; "" where there is none
	host      string // the client's, where it is known
	transport Transport
	version   string          // of the protocol; "" where it is not known
	request   json.RawMessage // the JSON-RPC id, if it is at hand
	parent    trace.Context   // where the client's trace is
	task      string          // see sessionTask; "" where it is not known yet
	whole     bool            // the answer may be of any size
	share     turns.Line      // line, where it is known already
}

// line is whose share of what is bounded a call takes: the authenticated caller's,
// and of that its session's, or else that of its address.
func (o origin) line() turns.Line {
	if o.share != (turns.Line{}) {
		return o.share
	}
	return lineOf(o.subject, o.session, o.host)
}

// withoutSession begins the Session of a line without one. No session has a space in its id.
const withoutSession = "at "

// lineOf is the line of a session of a caller, or else of its address. Without
// authentication the caller is "", and the session or the address counts by itself.
func lineOf(caller, session, host string) turns.Line {
	if session == "" {
		session = withoutSession + host
	}
	return turns.Line{Caller: caller, Session: session}
}

// client tells apart whom peers may speak to: it is the session, or else the caller.
// Callers without a token are told apart by their address.
func (o origin) client() string {
	switch {
	case o.session != "":
		return o.session
	case o.subject == "" && o.host != "":
		return "address " + o.host
	}
	return "caller " + o.caller
}

// clientOf is client of an origin with this line.
func clientOf(line turns.Line) string {
	host, none := strings.CutPrefix(line.Session, withoutSession)
	if !none {
		return line.Session
	}
	return origin{subject: line.Caller, caller: line.Caller, host: host}.client()
}

// metaTask is where a client says in _meta what its call is a part of.
const metaTask = "orloj.dev/task"

// taskOf is what a call is a part of: what its client says, else a name of the
// session; "" without either (SPEC-TOOLS 2.1). Services get to see it, so that
// the session's id must not: it would let them take the session over.
func taskOf(meta json.RawMessage, from *origin) string {
	const longest = 256
	said := ""
	if meta != nil {
		said, _ = wire.TextOf(wire.MemberOf(meta, metaTask))
	}
	switch {
	case said != "" && len(said) <= longest:
		return said
	case from.session == "":
		return ""
	case from.task != "":
		return from.task
	}
	return sessionTask(from.session)
}

// sessionTask is the name of a session for those who are not to know its id.
func sessionTask(session string) string {
	digest := sha256.Sum256([]byte(session))
	return "session-" + hex.EncodeToString(digest[:8])
}

// Transport is the way that a call came in.
type Transport string

const (
	StreamableHTTP Transport = "http"
)

// parentIn is the trace that a _meta says, without escapes in it. "The tracestate header is
// meaningless without traceparent": they come from one place.
func parentIn(meta json.RawMessage) trace.Context {
	if meta == nil {
		return trace.Context{}
	}
	var parent, state string
	rawjson.Members(meta, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case trace.ParentKey:
			parent = rawjson.String(value)
		case trace.StateKey:
			state = rawjson.String(value)
		}
		return true
	})
	if parent == "" {
		return trace.Context{}
	}
	c, _ := trace.Parse(parent, state)
	return c
}

// parentOf is the trace that the headers of a request say.
func parentOf(headers http.Header) trace.Context {
	given := headers["Traceparent"]
	if len(given) != 1 { // "multiple traceparent headers" are none (W3C Trace Context, §3.2)
		return trace.Context{}
	}
	c, _ := trace.Parse(given[0], strings.Join(headers["Tracestate"], ","))
	return c
}
