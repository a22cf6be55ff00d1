package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/subscription"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// beginTime bounds how long a client waits to follow a resource.
const beginTime = 30 * time.Second

func (b *Bridge) holderOf(uri string) (h subscription.Holder) {
	h.Peer, h.Listed = b.catalog.Catalog().Holder(uri)
	return h
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
	if refused := b.followFor(ctx, r, r.session.Inbox, uri); refused != nil {
		return nil, refused
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
	f := b.subscriptions.Use(uri)
	defer b.subscriptions.Done(f)
	b.subscriptions.Remove(f, r.session.Inbox)
	r.session.Inbox.Forget(uri)
	if err := b.amend(context.WithoutCancel(ctx), f, r.from.As); err != nil {
		return nil, b.rpcError(r, err)
	}
	return wire.Parts{[]byte("{}")}, nil
}

// followFor has the client of a request be told when a resource changes, if its caller may read it.
func (b *Bridge) followFor(ctx context.Context, r *Request, who *client.Inbox, uri string) *jsonrpc.Error {
	asked := r.asking(rawjson.Pair("uri", uri))
	_, refused := b.noted(ctx, r, &asked, func() (wire.Parts, *jsonrpc.Error) {
		c := b.catalog.Catalog()
		if asked.Noted != nil {
			holder, _ := c.Holder(uri)
			asked.Noted.Target = c.NameOf(holder)
		}
		caller := callerOf(&r.from)
		caller.Agent, caller.Task = rules.AgentIn(asked.Meta), asked.Task
		if err := b.opts.Rules.May(caller, func() *rules.Target { return c.TargetOfResource(uri) }, asked.Noted); err != nil {
			return nil, b.refused(ctx, r.Method, err)
		}
		who.SetReader(callerOf(&r.from))
		if err := b.followResource(ctx, who, uri, r.from.As, subscription.For{Agent: caller.Agent, Task: caller.Task}); err != nil {
			return nil, b.rpcError(r, err)
		}
		return nil, nil
	})
	return refused
}

// followResource has a client be told when a resource changes.
func (b *Bridge) followResource(ctx context.Context, who *client.Inbox, uri string, owner turns.Owner, as subscription.For) error {
	if len(uri) > subscription.MaxURI {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the URI of a resource that is subscribed to may have %d bytes at most", subscription.MaxURI)}
	}
	if len(as.Agent) > subscription.MaxAgent {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the name of an agent for which a resource is subscribed to may have %d bytes at most", subscription.MaxAgent)}
	}
	f := b.subscriptions.Use(uri)
	defer b.subscriptions.Done(f)
	if err := b.subscriptions.Add(f, who, owner, as); err != nil { // first: who has the turn is not to end it
		return b.refused(ctx, wire.MethodSubscribe, err)
	}
	err := b.begin(ctx, f, owner)
	if err != nil {
		b.subscriptions.Remove(f, who)
	}
	// Whoever left in the meantime may not have waited for the turn.
	if err := b.amend(context.WithoutCancel(ctx), f, owner); err != nil {
		b.log.Debug("tell a peer who follows its resource", "uri", f.URI, "err", err)
	}
	return err
}

// left forgets a client that has left: it is told nothing any more, and follows nothing.
func (b *Bridge) left(who *client.Inbox) {
	b.audience.leave(who)
	b.subscriptions.Leave(who)
}

// begin tells the peer of a resource that it is followed, and returns what the
// peer has to say to that.
func (b *Bridge) begin(ctx context.Context, f *subscription.Resource, owner turns.Owner) error {
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	if err := b.takeTurn(ctx, f.Telling, owner); err != nil {
		return b.refused(ctx, wire.MethodSubscribe, err)
	}
	defer f.Telling.Give(owner)
	who, err := b.tellHolder(ctx, peer.Request{Method: wire.MethodSubscribe, Owner: owner}, f.URI)
	if _, refused := results.Refusal(err); !refused { // else it may have heard
		b.hears(ctx, f, who, owner)
	}
	if err != nil {
		return b.refused(ctx, wire.MethodSubscribe, err)
	}
	return nil
}

// amend tells the peers of a resource what is news to them, in its turn. It counts as owner's.
func (b *Bridge) amend(ctx context.Context, f *subscription.Resource, owner turns.Owner) (err error) {
	wait, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return b.amendWithin(wait, ctx, f, owner)
}

// amendWithin does as amend. wait bounds how long it waits for its turn.
func (b *Bridge) amendWithin(wait, ctx context.Context, f *subscription.Resource, owner turns.Owner) (err error) {
	news := func() bool { return b.subscriptions.News(f, b.holderOf(f.URI)) != "" }
	_ = b.tellInTurn(wait, f.Telling, owner, news, func() error { // what it returns is nil
		err = b.say(ctx, f, owner)
		return nil
	})
	return err
}

// say tells the peers of a resource what is news to them. The caller has the turn.
// There is no second word: a peer that could not be told does so later.
func (b *Bridge) say(ctx context.Context, f *subscription.Resource, owner turns.Owner) error {
	method := b.subscriptions.News(f, b.holderOf(f.URI))
	if method == "" {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	req := peer.Request{Method: method, Later: true, Owner: b.subscriptions.OwnerOf(f, owner)}
	var err error
	if method == wire.MethodSubscribe {
		var who subscription.Holder
		who, err = b.tellHolder(asking, req, f.URI)
		b.hears(ctx, f, who, req.Owner)
	} else {
		err = b.tellFollowed(asking, b.subscriptions.Told(f), req, f.URI)
		b.subscriptions.Knows(f, false, subscription.Holder{})
	}
	if err != nil {
		return b.refused(ctx, method, err)
	}
	return nil
}

// tellHolder tells the peer of a resource that it is followed, and returns who that is.
func (b *Bridge) tellHolder(ctx context.Context, req peer.Request, uri string) (who subscription.Holder, err error) {
	for {
		who = b.holderOf(uri)
		err = b.tellFollowed(ctx, who.Peer, req, uri)
		if !errors.Is(err, peer.ErrGone) || ctx.Err() != nil || b.holderOf(uri) == who {
			return who, err
		}
	}
}

// hears notes that a peer may take a resource for followed. The peer that it belonged to before
// is told that nobody follows it there any more, as it would keep that for each new process. The caller has the turn.
func (b *Bridge) hears(ctx context.Context, f *subscription.Resource, who subscription.Holder, owner turns.Owner) {
	former := b.subscriptions.Knows(f, true, who)
	if former == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	if err := b.tellFollowed(ctx, former, peer.Request{Method: wire.MethodUnsubscribe, Later: true, Owner: owner}, f.URI); err != nil {
		b.log.Debug("tell a peer that a resource is another's now", "uri", f.URI, "err", err)
	}
}

// tellFollowed tells a peer whether a resource is followed; if that is nil, the one that it belongs to. By
// whom is the bridge's business.
func (b *Bridge) tellFollowed(ctx context.Context, to supervisor.Peer, req peer.Request, uri string) (err error) {
	// The peer may speak of the subscription as long as it likes. To count the client makes
	// sure that it does not speak of it to another one (SPEC N2).
	req.Session = client.NameOf(req.Owner)
	req.Params = rawjson.Pair("uri", uri)
	if to == nil {
		_, err = b.catalog.Request(ctx, req)
	} else {
		_, err = b.catalog.RequestOf(ctx, to, req)
	}
	return err
}

// tellUpdates passes on which resources have changed, until ctx ends. It rests for as long as it takes to tell
// those who follow one: a peer can say it many times a second.
func (b *Bridge) tellUpdates(ctx context.Context) {
	for {
		select {
		case uri := <-b.catalog.Updated():
			began := time.Now()
			target := func() *rules.Target { return b.catalog.Catalog().TargetOfResource(uri) }
			for who, as := range b.subscriptions.Followers(uri) {
				reader := who.Reader()
				reader.Agent, reader.Task = as.Agent, as.Task
				if b.opts.Rules.May(reader, target, nil) == nil { // the rules may be others since it follows
					who.ResourceUpdated(uri)
				}
			}
			if !pace.Sleep(ctx, time.Since(began)) {
				return
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
		case <-b.subscriptions.Leaving():
			left := b.subscriptions.TakeUntold()
			b.amendThese(ctx, left)
			for _, d := range left {
				b.subscriptions.GiveBack(d)
			}
		case <-ctx.Done():
			return
		}
	}
}

// amendThese tells peers what is news to them of some resources. It looks for news of one
// after the other, until ctx ends, and returns how long that took.
func (b *Bridge) amendThese(ctx context.Context, these []subscription.Left) (looked time.Duration) {
	began := time.Now()
	var all sync.WaitGroup
	for _, d := range these {
		if ctx.Err() != nil {
			break
		}
		f := b.subscriptions.Use(d.URI)
		if b.subscriptions.News(f, b.holderOf(f.URI)) == "" {
			b.subscriptions.Done(f)
			continue
		}
		all.Go(func() {
			defer recovered.To(b.log, "tell a peer who follows its resource", nil)
			defer b.subscriptions.Done(f)
			if err := b.amendWithin(atOnce(ctx), ctx, f, d.Owner()); err != nil {
				b.log.Debug("tell a peer who follows its resource", "uri", d.URI, "err", err)
			}
		})
	}
	looked = time.Since(began)
	all.Wait()
	return looked
}

// restFactor is how many times as long as it takes to look at what clients follow, nothing is
// looked at afterwards: a peer can change what it offers at any time, many times a second.
const restFactor = 9

// tellPeers tells the peers that are new what clients want, until ctx ends: one
// whose manifest has changed knows nothing of what the one before was told.
func (b *Bridge) tellPeers(ctx context.Context) {
	for {
		c := b.catalog.Catalog()
		b.tellLevel(atOnce(ctx), ctx, turns.Owner{})
		looked := b.amendThese(ctx, b.subscriptions.All())
		if !pace.Sleep(ctx, restFactor*looked) || c.Wait(ctx) != nil {
			return
		}
	}
}
