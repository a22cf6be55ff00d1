// Package trace carries the W3C trace context of a call, from the client or from Orla's own span, to the
// tool that answers. It is a context value, since it only correlates. The package does not import
// OpenTelemetry, since the bridge and the providers share it.
//
// Its invariant: a Context that is not zero is well-formed, and safe in a
// header, in an environment and in JSON.
package trace

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/orla-project/orla/internal/call/callid"
)

// Names under which a trace context travels.
const (
	ParentKey = "traceparent" // of an HTTP header, and in _meta
	StateKey  = "tracestate"
	ParentEnv = "TRACEPARENT" // of an environment variable
	StateEnv  = "TRACESTATE"
)

// Context is a trace context: the parent of everything that the call causes. The zero value is none. Only
// this package makes others.
type Context struct {
	parent string // a well-formed traceparent
	state  string // a tracestate; may be empty
}

// Lengths of a traceparent's parts (W3C Trace Context, §3.2).
const (
	parentLen = 55 // of version 00, and the least of later ones
	idAt      = 3
	spanAt    = 36
	flagsAt   = 53
	maxParent = 256 // what a later version may have behind its flags is bounded here
	maxState  = 4 << 10
)

// Parse returns the context of a traceparent and a tracestate. It reports false for an invalid traceparent:
// "the vendor creates a new traceparent" then (§3.2.4). A tracestate that cannot be passed on safely is
// left out.
func Parse(parent, state string) (Context, bool) {
	if !wellFormed(parent) {
		return Context{}, false
	}
	if len(state) > maxState || strings.ContainsFunc(state, func(r rune) bool { return (r < ' ' || r > '~') && r != '\t' }) {
		state = ""
	}
	return Context{parent: parent, state: state}, true
}

func wellFormed(p string) bool {
	if len(p) < parentLen || len(p) > maxParent || p[idAt-1] != '-' || p[spanAt-1] != '-' || p[flagsAt-1] != '-' {
		return false
	}
	version, id, span, flags := p[:idAt-1], p[idAt:spanAt-1], p[spanAt:flagsAt-1], p[flagsAt:parentLen]
	switch rest := p[parentLen:]; {
	case version == "00" && rest != "", rest != "" && rest[0] != '-', version == "ff":
		return false
	case strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }):
		return false
	}
	return lowerHex(version) && lowerHex(id) && lowerHex(span) && lowerHex(flags) &&
		strings.Trim(id, "0") != "" && strings.Trim(span, "0") != ""
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Of returns the context of a span. The ids must not be zero.
func Of(trace [16]byte, span [8]byte, flags byte, state string) Context {
	p := make([]byte, 0, parentLen)
	p = append(p, "00-"...)
	p = hex.AppendEncode(p, trace[:])
	p = append(p, '-')
	p = hex.AppendEncode(p, span[:])
	p = append(p, '-')
	p = hex.AppendEncode(p, []byte{flags})
	c, ok := Parse(string(p), state)
	if !ok {
		panic("trace: the ids of a span are zero: " + string(p))
	}
	return c
}

// IsZero reports whether there is no trace.
func (c Context) IsZero() bool { return c.parent == "" }

// Parent is the traceparent; "" of the zero value.
func (c Context) Parent() string { return c.parent }

// State is the tracestate; "" if there is none.
func (c Context) State() string { return c.state }

// Headers calls set with the headers that pass c on, if there is a trace.
func (c Context) Headers(set func(key, value string)) {
	if !c.IsZero() {
		set(ParentKey, c.parent)
	}
	if c.state != "" {
		set(StateKey, c.state)
	}
}

// TraceID is the id of the trace, as hex; "" of the zero value.
func (c Context) TraceID() string {
	if c.IsZero() {
		return ""
	}
	return c.parent[idAt : spanAt-1]
}

// SpanID is the id of the place in the trace, as hex; "" of the zero value.
func (c Context) SpanID() string {
	if c.IsZero() {
		return ""
	}
	return c.parent[spanAt : flagsAt-1]
}

// carrier is a context that carries a trace context.
type carrier struct {
	context.Context
	at   Context
	work Work
}

// Value implements context.Context.
func (c *carrier) Value(k any) any {
	if _, ok := k.(callid.TraceKey); ok {
		return c
	}
	return c.Context.Value(k)
}

// carrierOf returns what carries the trace context in ctx; nil if nothing does.
func carrierOf(ctx context.Context) *carrier {
	c, _ := ctx.Value(callid.TraceKey{}).(*carrier)
	return c
}

// Work begins a part of a call that gets its own span. It returns a context with the new trace context, and
// a function to call when the part has ended.
type Work func(ctx context.Context) (context.Context, func())

// With returns a context that carries c; ctx itself if c is zero.
func With(ctx context.Context, c Context) context.Context {
	if c.IsZero() {
		return ctx
	}
	return &carrier{ctx, c, nil}
}

// WithWork returns a context that carries c, and begins parts of the call by work.
func WithWork(ctx context.Context, c Context, work Work) context.Context {
	return &carrier{ctx, c, work}
}

// From returns what ctx carries; zero if that is nothing.
func From(ctx context.Context) Context {
	if c := carrierOf(ctx); c != nil {
		return c.at
	}
	return Context{}
}

// Begin is called by a provider when the waiting is over and its tool begins to work. The function that it
// returns must be called when the work has ended.
func Begin(ctx context.Context) (context.Context, func()) {
	if c := carrierOf(ctx); c != nil && c.work != nil {
		return c.work(ctx)
	}
	return ctx, over
}

func over() {}
