// Package subscription knows which clients follow which resources, and counts that for each caller.
package subscription

import (
	"maps"
	"sync"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

const (
	// maxSubscriptions bounds the resources that all sessions follow, each counted
	// once for each session. A capsule's new process is told of as many.
	maxSubscriptions = 4096
	// subscriptionBytes is how long a URI may be to count as one of them. A peer that speaks
	// 2026-07-28 gets all that are followed whenever one is added.
	subscriptionBytes = 256
	// MaxURI bounds the URI of a resource that is followed, in bytes.
	MaxURI = 4 << 10
	// MaxAgent bounds the name of an agent for which a resource is followed, in bytes.
	MaxAgent = 256
)

// Table knows which sessions follow which resources. A peer has one
// subscription of a resource for all of them.
type Table struct {
	// shares counts each entry of Resource.followers, and each of untold until its peer
	// has been told: maxSubscriptions of all at most. It has a lock of its own, inside mu.
	shares  *turns.Shares
	limit   Limit
	leaving chan struct{} // holds a token when untold is not empty

	mu       sync.Mutex // guards the fields that follow, and those of what they hold
	byURI    map[string]*Resource
	byClient map[*client.Inbox]map[string]bool // the URIs that each client follows
	untold   []Left                            // of clients that have left, for their peers to be told
	byCaller map[string]int                    // how many count in shares for each caller, by its name
}

// Limit returns how many resources a caller may follow at one time; 0 for no limit of its own.
type Limit func(rules.Caller) int

// sharesOf is how much a subscription of a URI counts in shares.
func sharesOf(uri string) int64 { return 1 + int64(len(uri)/subscriptionBytes) }

// New returns a Table without subscriptions.
func New(limit Limit) *Table {
	return &Table{
		shares: turns.NewShares(maxSubscriptions), limit: limit, leaving: make(chan struct{}, 1),
		byURI: map[string]*Resource{}, byClient: map[*client.Inbox]map[string]bool{}, byCaller: map[string]int{},
	}
}

// Resource is a resource that sessions follow, or that a peer takes for one.
type Resource struct {
	URI     string
	Telling *turns.Queue // of who tells its peer; set while somebody uses it

	followers  map[*client.Inbox]follower // each counts in shares
	subscribed bool                       // its peer may take it for followed
	who        Holder                     // that was told so last
	uses       int                        // how many use it now: it is not forgotten meanwhile
}

// follower is for whom a subscription counts.
type follower struct {
	owner  turns.Owner // in shares; zero for nobody's
	caller string      // in byCaller
	For
}

// For is for which agent and task a client follows a resource. What is empty is for none.
type For struct{ Agent, Task string }

// Left is a resource that somebody has followed who has left. It counts as that one's
// until its peer has been told.
type Left struct {
	follower
	URI string
}

// Owner returns for whom it counts; zero for nobody.
func (l Left) Owner() turns.Owner { return l.owner }

// Holder is the peer that a resource belongs to.
type Holder struct {
	Peer   supervisor.Peer // nil if there is none
	Listed bool            // it is known to have it
}

// Use returns what is known of a resource. It has to be given back by Done.
func (s *Table) Use(uri string) *Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byURI[uri]
	if f == nil {
		f = &Resource{URI: uri, followers: map[*client.Inbox]follower{}}
		s.byURI[uri] = f
	}
	if f.uses == 0 {
		f.Telling = turns.NewQueue(1, 0)
	}
	f.uses++
	return f
}

// Done forgets a resource that nobody uses any more and nobody follows.
func (s *Table) Done(f *Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.uses--; f.uses > 0 {
		return
	}
	f.Telling = nil // it takes more memory than all the rest
	if len(f.followers) == 0 && !f.subscribed {
		delete(s.byURI, f.URI)
	}
}

// errTooMany refuses one for which there is no room.
var errTooMany = fault.New(fault.RateLimited,
	"too many subscriptions: %d of all clients at most, where each %d bytes of a URI count, and no caller or session has more than its share of them; unsubscribe from some",
	maxSubscriptions, subscriptionBytes)

// Add notes that a client follows a resource, or for whom it does now. The error says that there are too many.
func (s *Table) Add(f *Resource, who *client.Inbox, owner turns.Owner, as For) error {
	reader := who.Reader()
	most := s.limit(reader)
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, is := f.followers[who]; is {
		has.For = as
		f.followers[who] = has
		return nil
	}
	if most > 0 && s.byCaller[reader.Name] >= most {
		return fault.New(fault.RateLimited, "too many subscriptions: %s may follow %d resources at one time; unsubscribe from some", reader.Name, most)
	}
	if !s.shares.Try(owner, sharesOf(f.URI)) {
		return errTooMany
	}
	f.followers[who] = follower{owner, reader.Name, as}
	s.byCaller[reader.Name]++
	if s.byClient[who] == nil {
		s.byClient[who] = map[string]bool{}
	}
	s.byClient[who][f.URI] = true
	return nil
}

// GiveBack does not count a subscription any more.
func (s *Table) GiveBack(d Left) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBackLocked(d)
}

func (s *Table) giveBackLocked(d Left) {
	s.shares.Give(d.owner, sharesOf(d.URI))
	if s.byCaller[d.caller]--; s.byCaller[d.caller] == 0 {
		delete(s.byCaller, d.caller)
	}
}

// OfCallers returns how many resources each caller follows, by its name.
func (s *Table) OfCallers() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byCaller)
}

// Remove notes that a client does not follow a resource any more.
func (s *Table) Remove(f *Resource, who *client.Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of, has := s.removeLocked(f, who); has {
		s.giveBackLocked(Left{of, f.URI})
	}
}

// removeLocked does so, and returns for whom it still counts. The caller gives that back,
// or has it in untold.
func (s *Table) removeLocked(f *Resource, who *client.Inbox) (of follower, has bool) {
	if of, has = f.followers[who]; !has {
		return of, false
	}
	delete(f.followers, who)
	if delete(s.byClient[who], f.URI); len(s.byClient[who]) == 0 {
		delete(s.byClient, who)
	}
	return of, true
}

// Leave notes that a client follows nothing any more. Peers are told of it soon.
func (s *Table) Leave(who *client.Inbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.byClient[who] {
		of, _ := s.removeLocked(s.byURI[uri], who)
		s.untold = append(s.untold, Left{of, uri})
	}
	if len(s.untold) > 0 {
		select {
		case s.leaving <- struct{}{}:
		default:
		}
	}
}

// TakeUntold returns the resources of clients that have left. The caller gives their shares back.
func (s *Table) TakeUntold() []Left {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.untold
	s.untold = nil
	return left
}

// Followers returns those who follow a resource, and for whom.
func (s *Table) Followers(uri string) map[*client.Inbox]For {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byURI[uri]
	if f == nil {
		return nil
	}
	all := make(map[*client.Inbox]For, len(f.followers))
	for who, of := range f.followers {
		all[who] = of.For
	}
	return all
}

// Knows notes whether the peer of a resource may take it for followed, and who
// was asked. If that is another one than before, which may do so too, it returns that one.
func (s *Table) Knows(f *Resource, subscribed bool, who Holder) (former supervisor.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.subscribed && f.who.Peer != who.Peer {
		former = f.who.Peer
	}
	f.subscribed, f.who = subscribed, who
	return former
}

// Told returns the peer that was told last that a resource is followed; nil if there is none.
func (s *Table) Told(f *Resource) supervisor.Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.who.Peer
}

// News returns what is to be told of a resource, "" for nothing: that it is followed to the peer that it
// belongs to now, and that it is not to the one that was told last.
func (s *Table) News(f *Resource, now Holder) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(f.followers) == 0 && f.subscribed:
		return wire.MethodUnsubscribe
	case len(f.followers) > 0 && now.Peer != nil && (now.Peer != f.who.Peer || now.Listed && !f.who.Listed):
		return wire.MethodSubscribe
	}
	return ""
}

// All returns the resources that are known of.
func (s *Table) All() (all []Left) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri := range s.byURI {
		all = append(all, Left{URI: uri})
	}
	return all
}

// OwnerOf returns whose a message about a resource is: that of owner, unless it is nobody's, or
// else of one who follows it.
func (s *Table) OwnerOf(f *Resource, owner turns.Owner) turns.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range f.followers {
		if owner == (turns.Owner{}) {
			return other.owner
		}
	}
	return owner
}

// Leaving returns a channel that delivers when TakeUntold has something.
func (s *Table) Leaving() <-chan struct{} { return s.leaving }

// Free returns how many more subscriptions there is room for.
func (s *Table) Free() int64 { return s.shares.Free() }

// Resources returns of how many resources something is kept.
func (s *Table) Resources() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byURI)
}
