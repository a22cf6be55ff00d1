package mcpbridge

import (
	"context"
	"slices"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/subscription"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Resume goes on with a session that an earlier process began (SPEC Q2): with what its client has declared, the
// level of log messages that it wants, and the resources that it follows, as far as its caller may still do so. Peers are told soon after.
// The client is told that all lists may have changed. from is where its request came from.
func (b *Bridge) Resume(ctx context.Context, s *client.Session, says wire.Declared, level string, follows []string, from client.Origin) {
	says.Task = client.SessionTask(s.ID)
	if !s.Introduce(says) {
		return
	}
	b.audience.join(s.Inbox)
	s.Inbox.ListChanged([client.Lists]bool{true, true, true})
	if slices.Contains(wire.Levels, level) {
		b.verbosity.set(s, level)
	}
	if level == "" && len(follows) == 0 { // usually
		return
	}
	s.Inbox.SetReader(callerOf(&from))
	var news []subscription.Left
	for _, uri := range follows {
		target := func() *rules.Target { return b.catalog.Catalog().TargetOfResource(uri) }
		if b.opts.Rules.May(callerOf(&from), target, nil) != nil {
			continue // it may have been allowed when it began
		}
		f := b.subscriptions.Use(uri)
		if err := b.subscriptions.Add(f, s.Inbox, from.As, subscription.For{Task: says.Task}); err != nil {
			b.log.Warn("a client that came back no longer follows a resource", "uri", uri, "err", err)
		}
		b.subscriptions.Done(f)
		news = append(news, subscription.Left{URI: uri})
	}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer recovered.To(b.log, "tell peers what a client wants that has come back", nil)
		b.tellLevel(ctx, ctx, turns.Owner{})
		b.amendThese(ctx, news)
	}()
}
