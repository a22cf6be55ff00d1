package mcpbridge

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// What transports need of a bridge, in addition to NewRequest and Exchange.

// Log returns Options.Log.
func (b *Bridge) Log() *slog.Logger { return b.log }

// Requests returns the shares of the bytes of requests that are being read or answered.
func (b *Bridge) Requests() *turns.Shares { return b.requests }

// Answers returns the room for the bytes of answers that are being sent.
func (b *Bridge) Answers() *turns.Room { return b.room }

// Admitted calls Options.Admitted.
func (b *Bridge) Admitted(ctx context.Context, caller string) { b.opts.Admitted(ctx, caller) }

// HeadersRead calls Options.HeadersRead.
func (b *Bridge) HeadersRead(ctx context.Context, stream bool) { b.opts.HeadersRead(ctx, stream) }

// Metrics returns Options.Metrics.
func (b *Bridge) Metrics() http.Handler { return b.opts.Metrics }

// SeesAll reports whether a caller of some groups may know the names of all tools, such as by the metrics.
func (b *Bridge) SeesAll(caller string, groups []string) bool {
	return !b.opts.Rules.Rules().Narrowed(rules.Caller{Name: caller, Groups: groups})
}

// Refusing calls Options.Refusing.
func (b *Bridge) Refusing() string { return b.opts.Refusing() }

// Starting calls Options.Starting.
func (b *Bridge) Starting() []string { return b.opts.Starting() }

// Limits returns how much a caller of some groups may have at one time.
func (b *Bridge) Limits(caller string, groups []string) rules.Limits {
	return b.opts.Rules.Limits(caller, groups)
}

// Held is what callers hold of the bridge, by their names.
type Held struct {
	Subscriptions map[string]int   // resources that they follow
	Kept          map[string]int64 // bytes of kept answers
}

// HeldByCallers returns what callers hold now.
func (b *Bridge) HeldByCallers() Held {
	return Held{b.subscriptions.OfCallers(), b.large.store.Sizes()}
}

// Tools returns how many tools there are.
func (b *Bridge) Tools() int { return len(b.catalog.Catalog().Tools) }

// HeaderParams returns the arguments of a tool that HTTP headers repeat; nil for none, and for a caller of some groups whose
// lists do not have the tool.
func (b *Bridge) HeaderParams(tool, caller string, groups []string) *wire.HeaderParam {
	l := b.lists.made.Load()
	known, _ := l.tools.Find(tool)
	if known.Traits.Headers == nil || !b.opts.Rules.Rules().Calls(rules.Caller{Name: caller, Groups: groups}, l.of.Target(tool)) {
		return nil
	}
	return known.Traits.Headers
}

// Knows reports whether a method exists.
func Knows(method string) bool {
	_, known := methods[method]
	return known
}

// EndCallers ends the calls in flight and the conversations of some authenticated callers, and
// drops their kept answers.
func (b *Bridge) EndCallers(is func(caller string) bool) {
	b.catalog.End(func(l turns.Owner) bool { return l.Caller != "" && is(l.Caller) })
	b.conversations.EndOf(is)
	b.large.store.DropOf(is)
}
