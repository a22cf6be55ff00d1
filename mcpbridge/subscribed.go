package mcpbridge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

const (
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
	shares *turns.Shares // of maxSubscriptions; has a lock of its own
	ended  chan struct{} // holds a token when left is not empty

	mu   sync.Mutex // guards the fields that follow, and those of what of holds
	of   map[string]*followed
	by   map[*client.Inbox]map[string]bool // the URIs that each client follows
	left []departed                        // of who has left without a word
}

func newSubscriptions() *subscriptions {
	return &subscriptions{
		shares: turns.NewShares(maxSubscriptions), ended: make(chan struct{}, 1),
		of: map[string]*followed{}, by: map[*client.Inbox]map[string]bool{},
	}
}

// followed is a resource that sessions follow, or that a peer takes for one.
type followed struct {
	uri     string
	telling turn // of who tells its peer

	by   map[*client.Inbox]turns.Owner
	told bool   // its peer may take it for followed
	who  holder // that was told so last
	uses int    // how many have it in hand
}

// departed is a resource that somebody has followed who has left. It counts as that one's
// until its peer has been told.
type departed struct {
	uri   string
	owner turns.Owner // zero for nobody's
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
		f = &followed{uri: uri, telling: newTurn(), by: map[*client.Inbox]turns.Owner{}}
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

// add notes that a client follows a resource. It reports false if there are too many.
func (s *subscriptions) add(f *followed, who *client.Inbox, owner turns.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := f.by[who]; has {
		return true
	}
	if !s.shares.Try(owner, 1) {
		return false
	}
	f.by[who] = owner
	if s.by[who] == nil {
		s.by[who] = map[string]bool{}
	}
	s.by[who][f.uri] = true
	return true
}

// remove notes that a client does not follow a resource any more.
func (s *subscriptions) remove(f *followed, who *client.Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, has := s.removeLocked(f, who); has {
		s.shares.Give(owner, 1)
	}
}

// removeLocked does so, and returns whose it still counts as.
func (s *subscriptions) removeLocked(f *followed, who *client.Inbox) (owner turns.Owner, has bool) {
	if owner, has = f.by[who]; !has {
		return owner, false
	}
	delete(f.by, who)
	if delete(s.by[who], f.uri); len(s.by[who]) == 0 {
		delete(s.by, who)
	}
	return owner, true
}

// leave notes that a client follows nothing any more. Peers are told of it soon.
func (s *subscriptions) leave(who *client.Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.by[who] {
		owner, _ := s.removeLocked(s.of[uri], who)
		s.left = append(s.left, departed{uri, owner})
	}
	if len(s.left) > 0 {
		select {
		case s.ended <- struct{}{}:
		default:
		}
	}
}

// takeLeft returns the resources that somebody has left.
func (s *subscriptions) takeLeft() []departed {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.left
	s.left = nil
	return left
}

// followers returns those who follow a resource.
func (s *subscriptions) followers(uri string) []*client.Inbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[uri]
	if f == nil {
		return nil
	}
	return slices.Collect(maps.Keys(f.by))
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
		return wire.MethodUnsubscribe
	case len(f.by) > 0 && now.peer != nil && (now.peer != f.who.peer || now.listed && !f.who.listed):
		return wire.MethodSubscribe
	}
	return ""
}

// all returns the resources that are known of.
func (s *subscriptions) all() (all []departed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.of {
		all = append(all, departed{uri: uri})
	}
	return all
}

// ownerOf returns whose a message about a resource is: that of owner, unless it is nobody's, or
// else of one who follows it.
func (s *subscriptions) ownerOf(f *followed, owner turns.Owner) turns.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range f.by {
		if owner == (turns.Owner{}) {
			return other
		}
	}
	return owner
}

// subscribe answers a resources/subscribe.
func (b *Bridge) subscribe(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	uri, ok := wire.TextOf(r.Params.URI)
	switch {
	case !ok:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	case r.session == nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "there is no session that could follow a resource; send initialize first"}
	}
	defer b.leftMeanwhile(r.session)
	if err := b.followResource(ctx, r.session.Inbox, uri, r.from.As); err != nil {
		return nil, b.rpcError(r, err)
	}
	return wire.Parts{[]byte("{}")}, nil
}

// unsubscribe answers a resources/unsubscribe.
func (b *Bridge) unsubscribe(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	uri, ok := wire.TextOf(r.Params.URI)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	if r.session == nil {
		return wire.Parts{[]byte("{}")}, nil
	}
	f := b.subscriptions.use(uri)
	defer b.subscriptions.done(f)
	b.subscriptions.remove(f, r.session.Inbox)
	r.session.Inbox.Forget(uri)
	if err := b.amend(context.WithoutCancel(ctx), f, r.from.As); err != nil {
		return nil, b.rpcError(r, err)
	}
	return wire.Parts{[]byte("{}")}, nil
}

// followResource has a client be told when a resource changes.
func (b *Bridge) followResource(ctx context.Context, who *client.Inbox, uri string, owner turns.Owner) error {
	if len(uri) > maxURI {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the URI of a resource that is subscribed to may have %d bytes at most", maxURI)}
	}
	f := b.subscriptions.use(uri)
	defer b.subscriptions.done(f)
	if !b.subscriptions.add(f, who, owner) { // first: who has the turn is not to end it
		return b.refused(ctx, wire.MethodSubscribe, fault.New(fault.RateLimited,
			"too many subscriptions: %d of all clients at most, and no caller or session has more than its share of them; unsubscribe from some", maxSubscriptions))
	}
	err := b.begin(ctx, f, owner)
	if err != nil {
		b.subscriptions.remove(f, who)
	}
	// Whoever left meanwhile may not have waited for the turn.
	if err := b.amend(context.WithoutCancel(ctx), f, owner); err != nil {
		b.log.Debug("tell a peer who follows its resource", "uri", f.uri, "err", err)
	}
	return err
}

// left forgets a client that has left: it is told nothing any more, and follows nothing.
func (b *Bridge) left(who *client.Inbox) {
	b.audience.leave(who)
	b.subscriptions.leave(who)
}

// begin tells the peer of a resource that it is followed, and returns what the
// peer has to say to that.
func (b *Bridge) begin(ctx context.Context, f *followed, owner turns.Owner) error {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	if err := b.takeTurn(ctx, f.telling, owner); err != nil {
		return b.refused(ctx, wire.MethodSubscribe, err)
	}
	defer f.telling.give()
	who := b.holderOf(f.uri)
	err := b.tellFollowed(ctx, peer.Request{Method: wire.MethodSubscribe, Owner: owner}, f.uri)
	if _, refused := results.Refusal(err); !refused { // else it may have heard
		b.subscriptions.knows(f, true, who)
	}
	if err != nil {
		return b.refused(ctx, wire.MethodSubscribe, err)
	}
	return nil
}

// amend tells the peers of a resource what is news to them, in its turn. It counts as owner's.
func (b *Bridge) amend(ctx context.Context, f *followed, owner turns.Owner) (err error) {
	wait, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return b.amendWithin(wait, ctx, f, owner)
}

// amendWithin does as amend. wait bounds how long it waits for its turn.
func (b *Bridge) amendWithin(wait, ctx context.Context, f *followed, owner turns.Owner) (err error) {
	news := func() bool { return b.subscriptions.news(f, b.holderOf(f.uri)) != "" }
	_ = b.tellInTurn(wait, f.telling, owner, news, func() error { // what it returns is nil
		err = b.say(ctx, f, owner)
		return nil
	})
	return err
}

// say tells the peers of a resource what is news to them. The caller has the turn.
// There is no second word: a peer that could not be told does so later.
func (b *Bridge) say(ctx context.Context, f *followed, owner turns.Owner) error {
	who := b.holderOf(f.uri)
	method := b.subscriptions.news(f, who)
	if method == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	err := b.tellFollowed(ctx, peer.Request{Method: method, Later: true, Owner: b.subscriptions.ownerOf(f, owner)}, f.uri)
	if method == wire.MethodSubscribe {
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
	// The peer may speak of the subscription as long as it likes. To count the client makes
	// sure that it does not speak of it to another one (SPEC N2).
	req.Session = client.NameOf(req.Owner)
	req.Params = rawjson.Pair("uri", uri)
	_, err := b.catalog.Request(ctx, req)
	return err
}

// tellUpdates passes on which resources have changed, until ctx ends.
func (b *Bridge) tellUpdates(ctx context.Context) {
	for {
		select {
		case uri := <-b.catalog.Updated():
			for _, who := range b.subscriptions.followers(uri) {
				who.ResourceUpdated(uri)
			}
		case <-ctx.Done():
			return
		}
	}
}

// tellLeft tells peers whose resources nobody follows any more, until ctx ends.
func (b *Bridge) tellLeft(ctx context.Context) {
	for {
		select {
		case <-b.subscriptions.ended:
			left := b.subscriptions.takeLeft()
			b.amendThese(ctx, left)
			for _, d := range left {
				b.subscriptions.shares.Give(d.owner, 1)
			}
		case <-ctx.Done():
			return
		}
	}
}

// amendAll tells peers what is news to them of any resource. Where somebody has
// the turn it does not wait: that one looks again.
func (b *Bridge) amendAll(ctx context.Context) { b.amendThese(ctx, b.subscriptions.all()) }

// amendThese does so of some resources.
func (b *Bridge) amendThese(ctx context.Context, these []departed) {
	now, end := context.WithCancel(ctx)
	end()
	var all sync.WaitGroup
	for _, d := range these {
		all.Go(func() {
			defer recovered.To(b.log, "tell a peer who follows its resource", nil)
			f := b.subscriptions.use(d.uri)
			defer b.subscriptions.done(f)
			if err := b.amendWithin(now, ctx, f, d.owner); err != nil {
				b.log.Debug("tell a peer who follows its resource", "uri", d.uri, "err", err)
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
		b.tellLevel(now, ctx, turns.Owner{}) // who has the turn looks again
		b.amendAll(ctx)
		if c.Wait(ctx) != nil {
			return
		}
	}
}
