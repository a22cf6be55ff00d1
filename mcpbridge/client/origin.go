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

// Origin is where a request comes from.
type Origin struct {
	Caller    string   // the authenticated subject, else the transport
	Subject   string   // the authenticated subject; "" without authentication
	Groups    []string // of the authenticated subject; the caller must not change them
	Session   string   // its id; "" where there is none
	Host      string   // the client's, where it is known
	Transport Transport
	Version   string          // of the protocol; "" where it is not known
	Request   json.RawMessage // the JSON-RPC id, if it is at hand
	Parent    trace.Context   // the client's trace context
	Task      string          // see SessionTask; "" where it is not known yet
	Whole     bool            // the answer may be of any size
	As        turns.Owner     // the result of Owner, once it has been computed
}

// Owner returns whose share of the bounded resources a request uses: that of its authenticated
// caller, and within it that of its session, or else of its address.
func (o Origin) Owner() turns.Owner {
	if o.As != (turns.Owner{}) {
		return o.As
	}
	return OwnerOf(o.Subject, o.Session, o.Host)
}

// withoutSession is the prefix of Owner.Session for a request without a session. An id of a
// session contains no space.
const withoutSession = "at "

// OwnerOf returns the owner for a session of a caller, or else for its address. Without
// authentication the caller is "", and each session or address is an owner of its own.
func OwnerOf(caller, session, host string) turns.Owner {
	if session == "" {
		session = withoutSession + host
	}
	return turns.Owner{Caller: caller, Session: session}
}

// Client distinguishes the clients that peers may send messages to: by the session, or else by
// the caller, or else, without a token, by the address.
func (o Origin) Client() string {
	switch {
	case o.Session != "":
		return o.Session
	case o.Subject == "" && o.Host != "":
		return "address " + o.Host
	}
	return "caller " + o.Caller
}

// NameOf returns Client of an origin with this owner.
func NameOf(owner turns.Owner) string {
	host, none := strings.CutPrefix(owner.Session, withoutSession)
	if !none {
		return owner.Session
	}
	return Origin{Subject: owner.Caller, Caller: owner.Caller, Host: host}.Client()
}

// metaTask is the key in _meta with which a client names the task that its call is a part of.
const metaTask = "orloj.dev/task"

// TaskOf returns the task that a call is a part of: the one that its client names, else a name
// for the session; "" without either (SPEC-TOOLS 2.1). Services see it, so it must not be the
// session's id, with which they could take the session over.
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

// SessionTask returns a name for a session that does not reveal its id.
func SessionTask(session string) string {
	digest := sha256.Sum256([]byte(session))
	return "session-" + hex.EncodeToString(digest[:8])
}

// Transport is the transport by which a request came.
type Transport string

// The transports.
const (
	StreamableHTTP Transport = "http"
	LegacySSE      Transport = "sse"
	Stdio          Transport = "stdio"
	Control        Transport = "control" // the control API, which is not MCP
)

// ParentIn returns the trace context in a _meta. It does not read keys and values with escapes.
// traceparent and tracestate are always taken from the same place.
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

// ParentOf returns the trace context in the headers of a request.
func ParentOf(headers http.Header) trace.Context {
	given := headers["Traceparent"]
	if len(given) != 1 { // "multiple traceparent headers" are none (W3C Trace Context, §3.2)
		return trace.Context{}
	}
	c, _ := trace.Parse(given[0], strings.Join(headers["Tracestate"], ","))
	return c
}
