package mcpbridge

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
	"github.com/orla-project/orla/supervisor"
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
func (b *Bridge) observe(ctx context.Context, id string, asked supervisor.Call, from *origin) (_ context.Context, ended func(CallEnd)) {
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
		Session:      shortened(from.session),
		Transport:    from.transport,
		Version:      from.version,
		Request:      from.request,
		RequestBytes: len(asked.Args),
		Parent:       from.parent,
	})
}

// transportHeader marks the headers of a legacy SSE stream, which the SDK hands
// on with each of its requests. A client that sends it is described by itself.
const transportHeader = "Orla-Transport"

// hostHeader tells the SDK's way which address a POST came from. What a client sends
// under this name is removed.
const hostHeader = "Orla-Host"

// markedSSE are the headers of the GET that opened a stream, for all of its
// requests. The trace of the GET is none of theirs.
func markedSSE(opening http.Header) http.Header {
	marked := opening.Clone()
	marked.Del(trace.ParentKey)
	marked.Del(trace.StateKey)
	marked.Set(transportHeader, string(LegacySSE))
	return marked
}

func transportOf(extra *mcp.RequestExtra) Transport {
	switch {
	case extra == nil || extra.Header == nil:
		return Stdio
	case extra.Header.Get(transportHeader) == string(LegacySSE):
		return LegacySSE
	}
	return StreamableHTTP
}

// versionOf is the protocol version of a request that came through the SDK.
func versionOf(r *mcp.CallToolRequest) string {
	if version, ok := r.Params.Meta[mcp.MetaKeyProtocolVersion].(string); ok {
		return version
	}
	if r.Extra != nil {
		if version := r.Extra.Header.Get(versionHeader); version != "" {
			return version
		}
	}
	if init := r.Session.InitializeParams(); init != nil && withSessions[init.ProtocolVersion] {
		return init.ProtocolVersion
	}
	return ""
}

// parentIn is the trace that a request's _meta says, else that of its headers.
// "The tracestate header is meaningless without traceparent": they come from
// one place.
func parentIn(meta map[string]any, headers http.Header) trace.Context {
	if parent, ok := meta[trace.ParentKey].(string); ok {
		state, _ := meta[trace.StateKey].(string)
		if c, ok := trace.Parse(parent, state); ok {
			return c
		}
	}
	return parentOf(headers)
}

// parentInRaw is the trace that a _meta says, without escapes in it.
func parentInRaw(meta json.RawMessage) trace.Context {
	if meta == nil {
		return trace.Context{}
	}
	var parent, state string
	rawjson.Members(meta, func(key string, value json.RawMessage) bool {
		switch key {
		case trace.ParentKey:
			parent = rawjson.String(value)
		case trace.StateKey:
			state = rawjson.String(value)
		}
		return true
	})
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
