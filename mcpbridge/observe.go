package mcpbridge

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Transport is the way that a call came in.
type Transport string

// The transports.
const (
	StreamableHTTP Transport = "http"
	LegacySSE      Transport = "sse"
	Stdio          Transport = "stdio"
	Control        Transport = "control" // Bridge.Call
)

// CallStart is a call as it begins.
type CallStart struct {
	Tool string // as the client wrote it
	// Listed says that there is such a tool. The name of one that there is not
	// can be anything, as long as a request, and another each time.
	Listed       bool
	ID           string // the call_id of the log
	Caller       string // the authenticated subject, else the transport
	Session      string // enough to tell sessions apart; "" where there is none
	Transport    Transport
	Version      string          // of the protocol; "" where the client need not say it
	Request      json.RawMessage // the JSON-RPC id, if it is at hand
	RequestBytes int             // of the arguments
	// Parent is where the client's trace is, from _meta or else from the HTTP
	// headers; zero if it sent none. It is in the context as well.
	Parent trace.Context
}

// CallEnd is how a call ended.
type CallEnd struct {
	OK            bool
	Code          string // why not: a fault.Code, a tool's own code, or a JSON-RPC error's number
	IsError       bool   // the answer is a result with isError
	Fault         *fault.Error
	Attempts      int // that were made; 1 as a rule
	ResponseBytes int // of the answer's payload
	Took          time.Duration
}

// observe tells the observer, if there is one, of a call that begins. The
// context is the call's from here on; ended is to be told how it ends.
func (b *Bridge) observe(ctx context.Context, id string, asked peer.Call, from *origin) (_ context.Context, ended func(CallEnd)) {
	ctx = trace.With(ctx, from.parent)
	if b.observer == nil {
		return ctx, func(CallEnd) {}
	}
	_, listed := b.listedTraits(asked.Tool)
	return b.observer(ctx, CallStart{
		Tool:         asked.Tool,
		Listed:       listed,
		ID:           id,
		Caller:       from.caller,
		Session:      wire.Shortened(from.session),
		Transport:    from.transport,
		Version:      from.version,
		Request:      from.request,
		RequestBytes: len(asked.Args),
		Parent:       from.parent,
	})
}

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
