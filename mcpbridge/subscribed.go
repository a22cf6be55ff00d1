package mcpbridge

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/recovered"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/supervisor"
)

const (
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	// sweepTime is how long a subscription may outlive its session, while there
	// are updates.
	sweepTime = time.Minute
	// beginTime bounds how long a client waits to follow a resource.
	beginTime = 30 * time.Second
	// maxSubscriptions bounds the resources that all sessions follow, each counted
	// once for each session. A capsule's new process is told of as many.
	maxSubscriptions = 4096
	// maxURI bounds the URI of a resource that is followed, in bytes.
	maxURI = 4 << 10
)

// subscriptions knows which sessions follow which resources. A peer has one
// subscription of a resource for all of them.
type subscriptions struct {
	living func() iter.Seq[*mcp.ServerSession] // the sessions there are

	shares *turns.Shares // of maxSubscriptions; has a lock of its own

	mu sync.Mutex // guards of, and the fields of what it holds
	of map[string]*followed
}

// followed is a resource that sessions follow, or that a peer takes for one.
type followed struct {
	uri     string
	telling turn // of who tells its peer

	by   map[*mcp.ServerSession]turns.Line
	told bool   // its peer may take it for followed
	who  holder // that was told so last
	uses int    // how many have it in hand
}

// holder is the peer that a resource belongs to.
type holder struct {
	peer   supervisor.Peer // nil if there is none
	listed bool            // it is known to have it
}

func (b *Bridge) holderOf(uri string) (h holder) {
	h.peer, h.listed = b.catalog.Catalog().Holder(uri)
	return h
}

// use returns what is known of a resource. It has to be given back by done.
func (s *subscriptions) use(uri string) *followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[uri]
	if f == nil {
		f = &followed{uri: uri, telling: newTurn(), by: map[*mcp.ServerSession]turns.Line{}}
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

// add notes that a session follows a resource. It reports false if there are too many.
func (s *subscriptions) add(f *followed, session *mcp.ServerSession, line turns.Line) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := f.by[session]; has {
		return true
	}
	if !s.shares.Try(line, 1) {
		s.sweepLocked() // some may be of sessions that have ended
		if !s.shares.Try(line, 1) {
			return false
		}
	}
	f.by[session] = line
	return true
}

// remove notes that a session does not follow a resource any more.
func (s *subscriptions) remove(f *followed, session *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(f, session)
}

func (s *subscriptions) removeLocked(f *followed, session *mcp.ServerSession) {
	if line, has := f.by[session]; has {
		delete(f.by, session)
		s.shares.Give(line, 1)
	}
}

// knows notes whether the peer of a resource may take it for followed, and who
// was asked.
func (s *subscriptions) knows(f *followed, told bool, who holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.told, f.who = told, who
}

// news returns what the peer that a resource belongs to now is to be told of it; ""
// for nothing.
func (s *subscriptions) news(f *followed, now holder) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(f.by) == 0 && f.told:
		return methodUnsubscribe
	case len(f.by) > 0 && now.peer != nil && (now.peer != f.who.peer || now.listed && !f.who.listed):
		return methodSubscribe
	}
	return ""
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
	s.sweepLocked()
}

func (s *subscriptions) sweepLocked() {
	live := map[*mcp.ServerSession]bool{}
	for session := range s.living() {
		live[session] = true
	}
	for _, f := range s.of {
		for session := range f.by {
			if !live[session] {
				s.removeLocked(f, session)
			}
		}
	}
}

// subscribe is called before the SDK notes that a session follows a resource.
func (b *Bridge) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	if len(r.Params.URI) > maxURI {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the URI of a resource that is subscribed to may have %d bytes at most", maxURI)}
	}
	from := callerOf(r.Extra)
	from.session = r.Session.ID()
	f := b.subscriptions.use(r.Params.URI)
	defer b.subscriptions.done(f)
	if !b.subscriptions.add(f, r.Session, from.line()) { // first: who has the turn is not to end it
		return b.refused(ctx, methodSubscribe, fault.New(fault.RateLimited,
			"too many subscriptions: %d of all clients at most, and no caller or session has more than its share of them; unsubscribe from some", maxSubscriptions))
	}
	err := b.begin(ctx, f, from.line())
	if err != nil {
		b.subscriptions.remove(f, r.Session)
	}
	// Whoever left meanwhile may not have waited for the turn.
	if err := b.amend(context.WithoutCancel(ctx), f); err != nil {
		b.log.Debug("tell a peer who follows its resource", "uri", f.uri, "err", err)
	}
	return err
}

// begin tells the peer of a resource that it is followed, and returns what the
// peer has to say to that.
func (b *Bridge) begin(ctx context.Context, f *followed, line turns.Line) error {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	if !f.telling.take(ctx) {
		return b.refused(ctx, methodSubscribe, ctx.Err())
	}
	defer f.telling.give()
	who := b.holderOf(f.uri)
	err := b.tellFollowed(ctx, peer.Request{Method: methodSubscribe, Line: line}, f.uri)
	if _, refused := refusal(err); !refused { // else it may have heard
		b.subscriptions.knows(f, true, who)
	}
	if err != nil {
		return b.refused(ctx, methodSubscribe, err)
	}
	return nil
}

// unsubscribe is called before the SDK forgets that a session follows a resource.
func (b *Bridge) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	f := b.subscriptions.use(r.Params.URI)
	defer b.subscriptions.done(f)
	b.subscriptions.remove(f, r.Session)
	// A client of the stateless era ends its subscription with its request.
	return b.amend(context.WithoutCancel(ctx), f)
}

// amend tells the peers of a resource what is news to them, in its turn.
func (b *Bridge) amend(ctx context.Context, f *followed) (err error) {
	wait, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return b.amendWithin(wait, ctx, f)
}

// amendWithin does as amend. wait bounds how long it waits for its turn.
func (b *Bridge) amendWithin(wait, ctx context.Context, f *followed) (err error) {
	news := func() bool { return b.subscriptions.news(f, b.holderOf(f.uri)) != "" }
	_ = f.telling.tell(wait, news, func() error { // what it returns is nil
		err = b.say(ctx, f)
		return nil
	})
	return err
}

// say tells the peers of a resource what is news to them. The caller has the turn.
// There is no second word: a peer that could not be told does so later.
func (b *Bridge) say(ctx context.Context, f *followed) error {
	who := b.holderOf(f.uri)
	method := b.subscriptions.news(f, who)
	if method == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	err := b.tellFollowed(ctx, peer.Request{Method: method, Later: true}, f.uri)
	if method == methodSubscribe {
		b.subscriptions.knows(f, true, who)
	} else {
		b.subscriptions.knows(f, false, holder{})
	}
	if err != nil {
		return b.refused(ctx, method, err)
	}
	return nil
}

// tellFollowed tells the peers of a resource whether it is followed. By whom is
// the bridge's business.
func (b *Bridge) tellFollowed(ctx context.Context, req peer.Request, uri string) error {
	req.Params = rawjson.Pair("uri", uri)
	_, err := b.catalog.Request(ctx, req)
	return err
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
	b.amendAll(ctx)
}

// amendAll tells peers what is news to them of any resource. Where somebody has
// the turn it does not wait: that one looks again.
func (b *Bridge) amendAll(ctx context.Context) {
	now, end := context.WithCancel(ctx)
	end()
	var all sync.WaitGroup
	for _, uri := range b.subscriptions.all() {
		all.Go(func() {
			defer recovered.To(b.log, "tell a peer who follows its resource", nil)
			f := b.subscriptions.use(uri)
			defer b.subscriptions.done(f)
			if err := b.amendWithin(now, ctx, f); err != nil {
				b.log.Debug("tell a peer who follows its resource", "uri", uri, "err", err)
			}
		})
	}
	all.Wait()
}

// tellPeers tells the peers that are new what clients want, until ctx ends: one
// whose manifest has changed knows nothing of what the one before was told.
func (b *Bridge) tellPeers(ctx context.Context) {
	now, end := context.WithCancel(ctx)
	end()
	for {
		c := b.catalog.Catalog()
		b.tellLevel(now, ctx) // who has the turn looks again
		b.amendAll(ctx)
		if c.Wait(ctx) != nil {
			return
		}
	}
}
