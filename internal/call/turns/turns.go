// Package turns bounds how much of something is used at once, and shares it fairly: between callers first, and
// between the sessions of a caller second (SPEC N2).
//
// A Queue counts places. If none is free, requests wait, and callers are served in turn, one place each; so are
// the sessions of a caller. A caller with a thousand requests waits a thousand turns for its last one, and
// delays each other caller by only one.
//
// Shares counts amounts, such as bytes. No caller may have more than it leaves free, and no session more than
// half of what its caller may have. A Room is Shares for calls whose amount grows while they run.
//
// Joining a queue, leaving it and being served takes constant time, however many wait.
package turns

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Owner says whose share something counts for: that of a session of a caller.
type Owner struct {
	// Caller is the authenticated caller. If "", the session is treated like a caller.
	Caller string
	// Session is one of the caller's sessions.
	Session string
}

// Tenant returns the owner's caller as an Owner: between tenants, things are shared first.
func (l Owner) Tenant() Owner {
	if l.Caller == "" {
		return l
	}
	return Owner{Caller: l.Caller}
}

// lately is how long a caller or a session counts as present after it has left.
const lately = 10 * time.Second

// maxSpare is how many nodes are kept to be used again.
const maxSpare = 8

// Queue is a number of places. Its methods may be called from any goroutine.
type Queue struct {
	mu      sync.Mutex // guards what follows
	root    node       // of all callers
	limit   int        // places in all; -1 for no limit
	beside  int        // see NewQueue; 0 for no bound
	each    int        // see NewCapped; 0 for no bound
	waiting int
	spare   []*node // to be used again
	recent  *node   // the session that was looked up last, which usually is the next one too; nil for none

	kept   map[*node]struct{} // nodes that wait until others have been gone for long enough
	look   *time.Timer        // looks at kept; nil before the first time
	lookAt time.Time          // when it does; zero if it does not

	moment         time.Duration // see NewAging; 0 if places do not age
	oldest, newest *Brief        // those that have not come of age, linked by next
	aging          *time.Timer   // has those come of age for whom others wait; nil before the first time
	armed          bool          // aging will fire
}

// node is a session, a caller with its sessions, or all callers. A node exists
// while anything is taken or waits below it.
type node struct {
	parent *node // nil for all callers
	owner  Owner
	taken  int
	aged   int // of taken; see NewAging

	children map[Owner]*node
	ready    list.List     // the children (*node) that can be served, the next one first
	inReady  *list.Element // in the parent's ready; nil if it is not there
	waiting  list.List     // of a session: its waiters (chan struct{}), in order

	latest, other left // the child that left last, and the last one that is not that one
}

// left is when a caller or a session left.
type left struct {
	owner Owner
	at    time.Time
}

// NoLimit is the limit of a Queue that has as many places as are wanted.
const NoLimit = -1

// NewQueue returns a Queue of so many places. A caller has at most beside of them
// while there is another caller or was one lately, and so has a session while there is
// another session of its caller. If beside is 0, a caller may have all.
func NewQueue(limit, beside int) *Queue { return &Queue{limit: limit, beside: beside} }

// NewCapped returns a Queue of so many places, of which no caller ever has more than each.
func NewCapped(limit, each int) *Queue { return &Queue{limit: limit, each: each} }

// NewAging returns a Queue of places that come of age: after a moment a place counts no
// more for what its owner may have beside others. Who works for so long waits for
// something else, as a rule. They are taken by TakeBriefly alone.
func NewAging(limit, beside int, moment time.Duration) *Queue {
	return &Queue{limit: limit, beside: beside, moment: moment}
}

// Resize sets the limit of all places. Nobody loses a place that it has.
func (q *Queue) Resize(limit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
	q.serveLocked()
}

// SetBeside changes how many places one has beside others, where that is bounded, from
// the next time that somebody joins or gives one back.
func (q *Queue) SetBeside(most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.beside > 0 {
		q.beside = most
	}
}

// Limit returns how many places there are.
func (q *Queue) Limit() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit
}

// Free returns how many places nobody has.
func (q *Queue) Free() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, q.limit-q.root.taken)
}

// Waiting returns how many wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Try takes a place if nobody has to be waited for.
func (q *Queue) Try(owner Owner) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryLocked(q.nodeLocked(owner))
}

func (q *Queue) tryLocked(n *node) bool {
	if n.waiting.Len() > 0 || !q.freeLocked(n) {
		q.dropLocked(n, 0)
		return false
	}
	n.take(1)
	return true
}

// Take takes a place, and waits for it until ctx ends; its error is ctx's cause. A
// place that was taken has to be given back.
func (q *Queue) Take(ctx context.Context, owner Owner) error { return q.take(ctx, owner, nil) }

// take is Take, and begins b if it is not nil.
func (q *Queue) take(ctx context.Context, owner Owner, b *Brief) error {
	n, at := q.join(owner, b)
	if at == nil {
		return nil
	}
	turn := at.Value.(chan struct{})
	select {
	case <-turn:
		if b != nil {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.beginLocked(b, n, time.Now())
		}
		return nil
	case <-ctx.Done():
	}
	q.leave(n, at, turn)
	return context.Cause(ctx)
}

// join takes a place, or begins to wait: then the second value is not nil.
func (q *Queue) join(owner Owner, b *Brief) (*node, *list.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var now time.Time
	if b != nil {
		now = time.Now()
		q.ageLocked(now)
	}
	n := q.nodeLocked(owner)
	if n.waiting.Len() == 0 && q.freeLocked(n) {
		n.take(1)
		if b != nil {
			q.beginLocked(b, n, now)
		}
		return n, nil
	}
	at := n.waiting.PushBack(make(chan struct{}))
	q.waiting++
	q.readyLocked(n)
	if b != nil {
		q.armLocked(now)
	}
	return n, at
}

// leave ends a wait, and gives back the place if it has just got one.
func (q *Queue) leave(n *node, at *list.Element, turn <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-turn:
		q.giveLocked(n, 0)
	default:
		n.waiting.Remove(at)
		q.waiting--
		q.readyLocked(n)
		q.dropLocked(n, 0)
	}
}

// Give gives back a place that Try or Take has taken.
func (q *Queue) Give(owner Owner) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveLocked(q.takerLocked(owner), 0)
}
