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

// With returns a context that carries id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// From returns the id that ctx carries, or a new one when it carries none.
func From(ctx context.Context) string {
	if id, ok := ctx.Value(key{}).(string); ok {
		return id
	}
	return New()
}

// Ensure returns a context that carries an id: ctx itself if it does.
func Ensure(ctx context.Context) context.Context {
	if _, ok := ctx.Value(key{}).(string); ok {
		return ctx
	}
	return With(ctx, New())
}
