// Package callid carries the id of a call in its context, from the bridge, which logs it, to the process
// that runs the call. The id only correlates log lines, so it is not a parameter of every function on
// the way. The package imports no other, since the bridge, the command line and the providers share it.
package callid

import (
	"context"
	"crypto/rand"
)

type key struct{}

// New returns an id that no other call has.
func New() string { return rand.Text() }

// TraceKey is the key of the trace context of a call, which is looked up many times in a call: a context that carries an
// id knows whether there is one.
type TraceKey struct{}

// carrier is a context that carries an id.
type carrier struct {
	context.Context
	id    string
	trace any // the value of TraceKey; nil for none
}

// Value implements context.Context.
func (c *carrier) Value(k any) any {
	switch k.(type) {
	case key:
		return c
	case TraceKey:
		return c.trace
	}
	return c.Context.Value(k)
}

// With returns a context that carries id.
func With(ctx context.Context, id string) context.Context {
	return &carrier{ctx, id, ctx.Value(TraceKey{})}
}

// From returns the id that ctx carries, or a new one when it carries none.
func From(ctx context.Context) string {
	if c, ok := ctx.Value(key{}).(*carrier); ok {
		return c.id
	}
	return New()
}

// Ensure returns a context that carries an id: ctx itself if it does.
func Ensure(ctx context.Context) context.Context {
	if _, ok := ctx.Value(key{}).(*carrier); ok {
		return ctx
	}
	return With(ctx, New())
}
