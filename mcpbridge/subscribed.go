package mcpbridge

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
)

const (
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	// sweepTime is how long a subscription may outlive its session, while there
	// are updates.
	sweepTime = time.Minute
	// beginTime bounds how long a client waits to follow a resource.
	beginTime = 30 * time.Second
)

// subscriptions knows which sessions follow which resources. A peer has one
// subscription of a resource for all of them.
type subscriptions struct {
	living func() iter.Seq[*mcp.ServerSession] // the sessions there are

	mu sync.Mutex // guards of, and the fields of what it holds
	of map[string]*followed
}

// followed is a resource that sessions follow, or that a peer takes for one.
type followed struct {
	uri     string
	telling turn // of who tells its peer

	by   map[*mcp.ServerSession]bool
	told bool // its peer may take it for followed
	uses int  // how many have it in hand
}

// use returns what is known of a resource. It has to be given back by done.
func (s *subscriptions) use(uri string) *followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[uri]
	if f == nil {
		f = &followed{uri: uri, telling: newTurn(), by: map[*mcp.ServerSession]bool{}}
		if s.of == nil {
			s.of = map[string]*followed{}
		}
		s.of[uri] = f
	}
	f.uses++
	return f
}

// done forgets a resource that nobody has in hand any more and nobody follows.
func (s *subscriptions) done(f *followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.uses--; f.uses == 0 && len(f.by) == 0 && !f.told {
		delete(s.of, f.uri)
	}
}

// set notes whether a session follows a resource.
func (s *subscriptions) set(f *followed, session *mcp.ServerSession, follows bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if follows {
		f.by[session] = true
	} else {
		delete(f.by, session)
	}
}

// knows notes whether the peer of a resource may take it for followed.
func (s *subscriptions) knows(f *followed, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.told = told
}

// over reports whether a peer tells of a resource that nobody follows.
func (s *subscriptions) over(f *followed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.told && len(f.by) == 0
}

// all returns the resources that are known of.
func (s *subscriptions) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.of))
}

// sweep forgets the sessions that are not live. It looks at the living as
// verbosity.set does.
func (s *subscriptions) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := map[*mcp.ServerSession]bool{}
	for session := range s.living() {
		live[session] = true
	}
	for _, f := range s.of {
		maps.DeleteFunc(f.by, func(session *mcp.ServerSession, _ bool) bool { return !live[session] })
	}
}

// subscribe is called before the SDK notes that a session follows a resource.
func (b *Bridge) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	f := b.subscriptions.use(r.Params.URI)
	defer b.subscriptions.done(f)
	b.subscriptions.set(f, r.Session, true) // first: who has the turn is not to end it
	err := b.begin(ctx, f)
	if err != nil {
		b.subscriptions.set(f, r.Session, false)
	}
	// Whoever left meanwhile may not have waited for the turn.
	if err := b.unfollow(ctx, f); err != nil {
		b.log.Debug("end a subscription", "uri", f.uri, "err", err)
	}
	return err
}

// begin tells the peer of a resource that it is followed, and returns what the
// peer has to say to that.
func (b *Bridge) begin(ctx context.Context, f *followed) error {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	if !f.telling.take(ctx) {
		return b.refused(ctx, methodSubscribe, ctx.Err())
	}
	defer f.telling.give()
	_, err := b.catalog.Request(ctx, peer.Request{Method: methodSubscribe, Params: rawjson.Pair("uri", f.uri)})
	if err == nil {
		b.subscriptions.knows(f, true)
		return nil
	}
	if _, refused := refusal(err); !refused { // it may have heard
		b.subscriptions.knows(f, true)
	}
	return b.refused(ctx, methodSubscribe, err)
}

// unsubscribe is called before the SDK forgets that a session follows a resource.
func (b *Bridge) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	f := b.subscriptions.use(r.Params.URI)
	defer b.subscriptions.done(f)
	b.subscriptions.set(f, r.Session, false)
	return b.unfollow(ctx, f)
}

// unfollow ends the subscription of a resource that nobody follows. A client of
// the stateless era ends its own with its request: it is told all the same.
func (b *Bridge) unfollow(ctx context.Context, f *followed) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	over := func() bool { return b.subscriptions.over(f) }
	_ = f.telling.tell(ctx, over, func() error { // what it returns is nil
		if over() {
			err = b.end(ctx, f)
		}
		return nil
	})
	return err
}

// end tells the peer of a resource that it is not followed any more. The caller
// has the turn. There is no second word on it: what a peer does not hear, it is
// not well enough to tell of either.
func (b *Bridge) end(ctx context.Context, f *followed) error {
	_, err := b.catalog.Request(ctx, peer.Request{Method: methodUnsubscribe, Params: rawjson.Pair("uri", f.uri)})
	b.subscriptions.knows(f, false)
	if err != nil {
		return b.refused(ctx, methodUnsubscribe, err)
	}
	return nil
}

// tellUpdates passes on which resources have changed, until ctx ends.
func (b *Bridge) tellUpdates(ctx context.Context) {
	swept := time.Now()
	for {
		select {
		case uri := <-b.catalog.Updated():
			_ = b.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}) // it has no error to return
		case <-ctx.Done():
			return
		}
		if time.Since(swept) > sweepTime {
			swept = time.Now()
			b.dropSubscriptions(ctx)
		}
	}
}

// dropSubscriptions ends what sessions have left behind: they are gone without a word.
func (b *Bridge) dropSubscriptions(ctx context.Context) {
	b.subscriptions.sweep()
	for _, uri := range b.subscriptions.all() {
		f := b.subscriptions.use(uri)
		if err := b.unfollow(ctx, f); err != nil {
			b.log.Debug("end a subscription", "uri", uri, "err", err)
		}
		b.subscriptions.done(f)
	}
}
