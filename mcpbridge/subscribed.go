package mcpbridge

import (
	"context"
	"iter"
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
)

// subscriptions knows which sessions follow which resources. A peer has one
// subscription of a resource for all of them.
type subscriptions struct {
	living func() iter.Seq[*mcp.ServerSession] // the sessions there are

	mu sync.Mutex // guards of
	of map[string]map[*mcp.ServerSession]bool
}

// add notes that a session follows a resource.
func (s *subscriptions) add(uri string, session *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]map[*mcp.ServerSession]bool{}
	}
	if s.of[uri] == nil {
		s.of[uri] = map[*mcp.ServerSession]bool{}
	}
	s.of[uri][session] = true
}

// remove notes that a session does not follow a resource any more, and reports
// whether it was the last.
func (s *subscriptions) remove(uri string, session *mcp.ServerSession) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.of[uri][session] {
		return false
	}
	delete(s.of[uri], session)
	if len(s.of[uri]) > 0 {
		return false
	}
	delete(s.of, uri)
	return true
}

// sweep forgets the sessions that are not live, and returns the resources that
// nobody follows any more. It looks at the living as verbosity.set does.
func (s *subscriptions) sweep() (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := map[*mcp.ServerSession]bool{}
	for session := range s.living() {
		live[session] = true
	}
	for uri, sessions := range s.of {
		for session := range sessions {
			if !live[session] {
				delete(sessions, session)
			}
		}
		if len(sessions) == 0 {
			delete(s.of, uri)
			left = append(left, uri)
		}
	}
	return left
}

// followed reports whether any session follows a resource.
func (s *subscriptions) followed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of[uri]) > 0
}

// subscribe is called before the SDK notes that a session follows a resource.
func (b *Bridge) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	b.subscriptions.add(r.Params.URI, r.Session) // first: see unfollow
	if err := b.tellFollowed(ctx, methodSubscribe, r.Params.URI); err != nil {
		b.subscriptions.remove(r.Params.URI, r.Session)
		return err
	}
	return nil
}

// unsubscribe is called before the SDK forgets that a session follows a resource.
func (b *Bridge) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	if !b.subscriptions.remove(r.Params.URI, r.Session) {
		return nil
	}
	// A client of the stateless era ends its subscription with its request.
	return b.unfollow(context.WithoutCancel(ctx), r.Params.URI)
}

// unfollow ends a peer's subscription that nobody needs. Who began to meanwhile
// may have been told first, and so is told again.
func (b *Bridge) unfollow(ctx context.Context, uri string) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	err := b.tellFollowed(ctx, methodUnsubscribe, uri)
	if b.subscriptions.followed(uri) {
		return b.tellFollowed(ctx, methodSubscribe, uri)
	}
	return err
}

// tellFollowed tells a peer whether one of its resources is followed. By whom is
// the bridge's business.
func (b *Bridge) tellFollowed(ctx context.Context, method, uri string) error {
	if _, err := b.catalog.Request(ctx, peer.Request{Method: method, Params: rawjson.Pair("uri", uri)}); err != nil {
		return b.refused(ctx, method, err)
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
	for _, uri := range b.subscriptions.sweep() {
		if err := b.unfollow(ctx, uri); err != nil {
			b.log.Debug("end a subscription", "uri", uri, "err", err)
		}
	}
}
