package client

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Origin is where a call came from.
type Origin struct {
	Caller    string // the authenticated subject, else the transport
	Subject   string // the authenticated subject; "" without authentication
	Session   string // its id; "" where there is none
	Host      string // the client's, where it is known
	Transport Transport
	Version   string          // of the protocol; "" where it is not known
	Request   json.RawMessage // the JSON-RPC id, if it is at hand
	Parent    trace.Context   // where the client's trace is
	Task      string          // see SessionTask; "" where it is not known yet
	Whole     bool            // the answer may be of any size
	As        turns.Owner     // what Owner returns, where it is known already
}

// Owner is whose share of what is bounded a call takes: the authenticated caller's,
// and of that its session's, or else that of its address.
func (o Origin) Owner() turns.Owner {
	if o.As != (turns.Owner{}) {
		return o.As
	}
	return OwnerOf(o.Subject, o.Session, o.Host)
}

// withoutSession begins the Session of an owner without one. No session has a space in its id.
const withoutSession = "at "

// OwnerOf is the owner of a session of a caller, or else of its address. Without
// authentication the caller is "", and the session or the address counts by itself.
func OwnerOf(caller, session, host string) turns.Owner {
	if session == "" {
		session = withoutSession + host
	}
	return turns.Owner{Caller: caller, Session: session}
}

// Client tells apart whom peers may speak to: it is the session, or else the caller.
// Callers without a token are told apart by their address.
func (o Origin) Client() string {
	switch {
	case o.Session != "":
		return o.Session
	case o.Subject == "" && o.Host != "":
		return "address " + o.Host
	}
	return "caller " + o.Caller
}

// NameOf is Client of an origin with this owner.
func NameOf(owner turns.Owner) string {
	host, none := strings.CutPrefix(owner.Session, withoutSession)
	if !none {
		return owner.Session
	}
	return Origin{Subject: owner.Caller, Caller: owner.Caller, Host: host}.Client()
}

// metaTask is where a client says in _meta what its call is a part of.
const metaTask = "orloj.dev/task"

// TaskOf is what a call is a part of: what its client says, else a name of the
// session; "" without either (SPEC-TOOLS 2.1). Services get to see it, so that
// the session's id must not: it would let them take the session over.
func TaskOf(meta json.RawMessage, from *Origin) string {
	const longest = 256
	said := ""
	if meta != nil {
		said, _ = wire.TextOf(rawjson.Get(meta, metaTask))
	}
	switch {
	case said != "" && len(said) <= longest:
		return said
	case from.Session == "":
		return ""
	case from.Task != "":
		return from.Task
	}
	return SessionTask(from.Session)
}

// SessionTask is the name of a session for those who are not to know its id.
func SessionTask(session string) string {
	digest := sha256.Sum256([]byte(session))
	return "session-" + hex.EncodeToString(digest[:8])
}

// Transport is the way that a call came in.
type Transport string

// The transports.
const (
	StreamableHTTP Transport = "http"
	LegacySSE      Transport = "sse"
	Stdio          Transport = "stdio"
	Control        Transport = "control" // the control API: no MCP
)

// ParentIn is the trace that a _meta says, without escapes in it. "The tracestate header is
// meaningless without traceparent": they come from one place.
func ParentIn(meta json.RawMessage) trace.Context {
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

// ParentOf is the trace that the headers of a request say.
func ParentOf(headers http.Header) trace.Context {
	given := headers["Traceparent"]
	if len(given) != 1 { // "multiple traceparent headers" are none (W3C Trace Context, §3.2)
		return trace.Context{}
	}
	c, _ := trace.Parse(given[0], strings.Join(headers["Tracestate"], ","))
	return c
}
