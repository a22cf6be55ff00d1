// Package rejudge ends calls that wait when the rules change so that they may not be made any more (SPEC-TOOLS
// 8.6). The gate puts a Judge into the context of a call. Whatever lets a call wait before anything of it is sent
// waits with the context of While. A call of which something was sent goes on.
package rejudge

import (
	"context"
	"sync"

	"github.com/orla-project/orla/internal/call/rules"
)

// Judge says whether a call may still be made. Its methods may be called from any goroutine.
type Judge interface {
	// Until returns a context that ends when other rules are in force.
	Until() context.Context
	// May returns why the call may not be made of a target; nil if it may.
	May(target *rules.Target) *Refusal
}

// Refusal is why a call may not be made any more.
type Refusal struct {
	Err error
	// Note, if not nil, is called by the goroutine of the call, before it hears of Err.
	Note func()
}

func (r *Refusal) note() {
	if r != nil && r.Note != nil {
		r.Note()
	}
}

type key struct{}

// call is what is judged.
type call struct {
	Judge
	target *rules.Target
}

// carrier is a context that carries a call.
type carrier struct {
	context.Context
	call
}

// Value implements context.Context.
func (c *carrier) Value(k any) any {
	if _, ok := k.(key); ok {
		return c
	}
	return c.Context.Value(k)
}

// callIn returns the call that ctx carries.
func callIn(ctx context.Context) (c call, ok bool) {
	if in, ok := ctx.Value(key{}).(*carrier); ok {
		return in.call, true
	}
	return call{}, false
}

// With returns a context with which a call of a target waits. A nil Judge returns ctx.
func With(ctx context.Context, j Judge, target *rules.Target) context.Context {
	if j == nil {
		return ctx
	}
	return &carrier{ctx, call{j, target}}
}

// Of judges a call again whose target is another one now.
func Of(ctx context.Context, target *rules.Target) (context.Context, error) {
	c, ok := callIn(ctx)
	if !ok {
		return ctx, nil
	}
	ctx = With(ctx, c.Judge, target)
	if refused := c.May(target); refused != nil {
		refused.note()
		return ctx, refused.Err
	}
	return ctx, nil
}

// Sent returns a context for a call of which something was sent, so that it is not judged again.
func Sent(ctx context.Context) context.Context {
	if _, ok := callIn(ctx); !ok {
		return ctx
	}
	return context.WithValue(ctx, key{}, nil)
}

// While returns a context for a wait, which ends also when the call may not be made any more. Its cause is the reason
// then. end must be called when the wait is over.
func While(ctx context.Context) (_ context.Context, end func()) {
	c, ok := callIn(ctx)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &wait{call: c, cancel: cancel}
	w.judge()
	return ctx, w.end
}

// wait is a call that waits.
type wait struct {
	call
	cancel context.CancelCauseFunc

	mu      sync.Mutex  // guards the fields that follow
	stop    func() bool // ends the wait for other rules
	refused *Refusal
	ended   bool
}

// judge judges the call, and again when the rules change.
func (w *wait) judge() {
	until := w.Until() // before May, so that no change is missed
	refused := w.May(w.target)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case refused != nil:
		w.refused = refused
		w.cancel(refused.Err)
	default:
		w.stop = context.AfterFunc(until, w.judge)
	}
}

func (w *wait) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended = true; w.stop != nil {
		w.stop()
	}
	w.refused.note()
	w.cancel(nil)
}
