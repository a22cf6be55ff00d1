package mcpbridge

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

const (
	// beginTime bounds how long a client waits to follow a resource.
	beginTime = 30 * time.Second
	// maxSubscriptions bounds the resources that all sessions follow, each counted
	// once for each session. A capsule's new process is told of as many.
	maxSubscriptions = 4096
	// subscriptionBytes is how long a URI may be to count as one of them. A peer that speaks
	// 2026-07-28 gets all that are followed whenever one is added.
	subscriptionBytes = 256
	// maxURI bounds the URI of a resource that is followed, in bytes.
	maxURI = 4 << 10
)

// subscriptions knows which sessions follow which resources. A peer has one
// subscription of a resource for all of them.
type subscriptions struct {
	// shares counts each entry of followed.followers, and each of untold until its peer
	// has been told: maxSubscriptions of all at most. It has a lock of its own, inside mu.
	shares  *turns.Shares
	leaving chan struct{} // holds a token when untold is not empty

	mu       sync.Mutex // guards the fields that follow, and those of what of holds
	byURI    map[string]*followed
	byClient map[*client.Inbox]map[string]bool // the URIs that each client follows
	untold   []departed                        // of clients that have left, for their peers to be told
}

// sharesOf is how much a subscription of a URI counts in shares.
func sharesOf(uri string) int64 { return 1 + int64(len(uri)/subscriptionBytes) }

func newSubscriptions() *subscriptions {
	return &subscriptions{
		shares: turns.NewShares(maxSubscriptions), leaving: make(chan struct{}, 1),
		byURI: map[string]*followed{}, byClient: map[*client.Inbox]map[string]bool{},
	}
}

// followed is a resource that sessions follow, or that a peer takes for one.
type followed struct {
	uri     string
	telling *turns.Queue // of who tells its peer; set while somebody uses it

	followers  map[*client.Inbox]turns.Owner // each counts in shares
	subscribed bool                          // its peer may take it for followed
	who        holder                        // that was told so last
	uses       int                           // how many use it now: it is not forgotten meanwhile
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

// use returns what is known of a resource. It has to be given back by done.
func (s *subscriptions) use(uri string) *followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byURI[uri]
	if f == nil {
		f = &followed{uri: uri, followers: map[*client.Inbox]turns.Owner{}}
		s.byURI[uri] = f
	}
	if f.uses == 0 {
		f.telling = turns.NewQueue(1, 0)
	}
	f.uses++
	return f
}

// done forgets a resource that nobody uses any more and nobody follows.
func (s *subscriptions) done(f *followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.uses--; f.uses > 0 {
		return
	}
	f.telling = nil // it takes more memory than all the rest
	if len(f.followers) == 0 && !f.subscribed {
		delete(s.byURI, f.uri)
	}
}

// add notes that a client follows a resource. It reports false if there are too many.
func (s *subscriptions) add(f *followed, who *client.Inbox, owner turns.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := f.followers[who]; has {
		return true
	}
	if !s.shares.Try(owner, sharesOf(f.uri)) {
		return false
	}
	f.followers[who] = owner
	if s.byClient[who] == nil {
		s.byClient[who] = map[string]bool{}
	}
	s.byClient[who][f.uri] = true
	return true
}

// remove notes that a client does not follow a resource any more.
func (s *subscriptions) remove(f *followed, who *client.Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner, has := s.removeLocked(f, who); has {
		s.shares.Give(owner, sharesOf(f.uri))
	}
}

// removeLocked does so, and returns whose share it still takes. The caller gives that back,
// or has it in untold.
func (s *subscriptions) removeLocked(f *followed, who *client.Inbox) (owner turns.Owner, has bool) {
	if owner, has = f.followers[who]; !has {
		return owner, false
	}
	delete(f.followers, who)
	if delete(s.byClient[who], f.uri); len(s.byClient[who]) == 0 {
		delete(s.byClient, who)
	}
	return owner, true
}

// leave notes that a client follows nothing any more. Peers are told of it soon.
func (s *subscriptions) leave(who *client.Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.byClient[who] {
		owner, _ := s.removeLocked(s.byURI[uri], who)
		s.untold = append(s.untold, departed{uri, owner})
	}
	if len(s.untold) > 0 {
		select {
		case s.leaving <- struct{}{}:
		default:
		}
	}
}

// takeUntold returns the resources of clients that have left. The caller gives their shares back.
func (s *subscriptions) takeUntold() []departed {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.untold
	s.untold = nil
	return left
}

// followers returns those who follow a resource.
func (s *subscriptions) followers(uri string) []*client.Inbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byURI[uri]
	if f == nil {
		return nil
	}
	return slices.Collect(maps.Keys(f.followers))
}

// knows notes whether the peer of a resource may take it for followed, and who
// was asked. If that is another one than before, which may do so too, it returns that one.
func (s *subscriptions) knows(f *followed, subscribed bool, who holder) (former supervisor.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.subscribed && f.who.peer != who.peer {
		former = f.who.peer
	}
	f.subscribed, f.who = subscribed, who
	return former
}

// told returns the peer that was told last that a resource is followed; nil if there is none.
func (s *subscriptions) told(f *followed) supervisor.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.who.peer
}

// news returns what is to be told of a resource, "" for nothing: that it is followed to the peer that it
// belongs to now, and that it is not to the one that was told last.
func (s *subscriptions) news(f *followed, now holder) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(f.followers) == 0 && f.subscribed:
		return wire.MethodUnsubscribe
	case len(f.followers) > 0 && now.peer != nil && (now.peer != f.who.peer || now.listed && !f.who.listed):
		return wire.MethodSubscribe
	}
	return ""
}

// all returns the resources that are known of.
func (s *subscriptions) all() (all []departed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.byURI {
		all = append(all, departed{uri: uri})
	}
	return all
}

// ownerOf returns whose a message about a resource is: that of owner, unless it is nobody's, or
// else of one who follows it.
func (s *subscriptions) ownerOf(f *followed, owner turns.Owner) turns.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range f.followers {
		if owner == (turns.Owner{}) {
			return other
		}
	}
	return owner
}
