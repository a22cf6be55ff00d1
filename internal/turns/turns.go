// Package turns bounds how much of something is taken at once, and shares it out
// fairly among those who want it: by caller first, and by session second (SPEC N2).
//
// A Queue counts places. Who finds none waits, and the callers are served in turn,
// one place each, and so are the sessions of a caller. A caller that asks a
// thousand times at once waits a thousand turns for the last answer, and keeps
// nobody else waiting for more than one.
//
// Shares counts bytes, or whatever else is not worth waiting for in turn. No caller
// has more than it leaves free, and no session of a caller has more than half of
// what its caller may have. Room is Shares for calls that grow while they run.
//
// To join a queue, to leave it and to be served costs the same however many wait.
package turns

import (
	"container/list"
	"context"
	"maps"
	"sync"
	"time"
)

// Line is who wants something.
type Line struct {
	// Caller is the authenticated caller. If "", the session stands for itself, as
	// if it were a caller.
	Caller string
	// Session is one of the caller's sessions.
	Session string
}

// Tenant is the line's caller, as a Line: what is shared out first.
func (l Line) Tenant() Line {
	if l.Caller == "" {
		return l
	}
	return Line{Caller: l.Caller}
}

// lately is how long a caller or a session counts as present after it has left.
const lately = 10 * time.Second

// maxSpare is how many nodes are kept to be used again.
const maxSpare = 8

// Queue is so many places. Its methods may be called from any goroutine.
type Queue struct {
	mu      sync.Mutex // guards what follows
	root    node       // of all callers
	limit   int        // places in all; -1 for no limit
	beside  int        // see NewQueue; 0 for no bound
	waiting int
	spare   []*node // to be used again
	recent  *node   // the session that was looked up last, if there is one; as a rule it is the next

	kept   map[*node]struct{} // that wait for others to have left long enough
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
	line   Line
	taken  int
	aged   int // of taken; see NewAging

	children map[Line]*node
	ready    list.List     // the children (*node) that can be served, the next one first
	inReady  *list.Element // in the parent's ready; nil if it is not there
	waiting  list.List     // of a session: its waiters (chan struct{}), in order

	latest, other left // the child that left last, and the last one that is not that one
}

// left is when a caller or a session left.
type left struct {
	line Line
	at   time.Time
}

// NoLimit is the limit of a Queue that has as many places as are wanted.
const NoLimit = -1

// NewQueue returns a Queue of so many places. A caller has at most beside of them
// while there is another caller or was one lately, and so has a session while there is
// another session of its caller. If beside is 0, a caller may have all.
func NewQueue(limit, beside int) *Queue { return &Queue{limit: limit, beside: beside} }

// NewAging returns a Queue of places that come of age: after a moment a place counts no
// more for what its line may have beside others. Who works for so long waits for
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
func (q *Queue) Try(line Line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryLocked(q.nodeLocked(line))
}

func (q *Queue) tryLocked(n *node) bool {
	if n.waiting.Len() > 0 || !q.freeLocked(n) {
		q.dropLocked(n)
		return false
	}
	n.take(1)
	return true
}

// Take takes a place, and waits for it until ctx ends; its error is ctx's cause. A
// place that was taken has to be given back.
func (q *Queue) Take(ctx context.Context, line Line) error { return q.take(ctx, line, nil) }

// take is Take, and begins b if it is not nil.
func (q *Queue) take(ctx context.Context, line Line, b *Brief) error {
	n, at := q.join(line, b)
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
func (q *Queue) join(line Line, b *Brief) (*node, *list.Element) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var now time.Time
	if b != nil {
		now = time.Now()
		q.ageLocked(now)
	}
	n := q.nodeLocked(line)
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
		q.giveLocked(n)
	default:
		n.waiting.Remove(at)
		q.waiting--
		q.readyLocked(n)
		q.dropLocked(n)
	}
}

// Give gives back a place that Try or Take has taken.
func (q *Queue) Give(line Line) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.giveLocked(q.takerLocked(line))
}

// TakeBriefly takes a place of a Queue that NewAging returned, as Take does. It is given
// back by Brief.Give.
func (q *Queue) TakeBriefly(ctx context.Context, line Line) (*Brief, error) {
	return q.TakeLonger(ctx, line, 1)
}

// TakeLonger is TakeBriefly of a place that comes of age after so many moments: for what
// is known to work for longer.
func (q *Queue) TakeLonger(ctx context.Context, line Line, moments int) (*Brief, error) {
	b := &Brief{of: q, moments: moments}
	if err := q.take(ctx, line, b); err != nil {
		return nil, err
	}
	return b, nil
}

// Brief is a place that TakeBriefly or TakeLonger has taken.
type Brief struct {
	of      *Queue
	moments int // after which it comes of age

	// What follows is guarded by of.mu.
	node       *node
	since      time.Time // of its first moment, or of another one
	until      time.Time // the end of its last one
	over, aged bool
	next       *Brief // whose since is not before its own
}

// beginLocked has a place that was just taken grow older.
func (q *Queue) beginLocked(b *Brief, n *node, now time.Time) {
	b.node, b.since, b.until = n, now, now.Add(time.Duration(b.moments)*q.moment)
	q.putLocked(b)
	q.armLocked(now)
}

// putLocked puts a place behind all that are not younger.
func (q *Queue) putLocked(b *Brief) {
	if q.oldest == nil {
		q.oldest = b
	} else {
		q.newest.next = b
	}
	q.newest = b
}

// ageLocked has those come of age that are old enough, and forgets those that are over.
func (q *Queue) ageLocked(now time.Time) {
	aged := false
	for b := q.oldest; b != nil && (b.over || now.Sub(b.since) >= q.moment); b = q.oldest {
		q.oldest, b.next = b.next, nil
		switch {
		case b.over:
		case now.Before(b.until):
			b.since = now
			q.putLocked(b)
		default:
			b.aged, aged = true, true
			b.node.age(1)
			q.readyLocked(b.node)
		}
	}
	if aged {
		q.serveLocked()
	}
}

// armLocked has the next one come of age in time, if anybody waits.
func (q *Queue) armLocked(now time.Time) {
	if q.armed || q.waiting == 0 || q.oldest == nil {
		return
	}
	q.armed = true
	in := q.oldest.since.Add(q.moment).Sub(now)
	if q.aging == nil {
		q.aging = time.AfterFunc(in, q.age)
	} else {
		q.aging.Reset(in)
	}
}

func (q *Queue) age() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = false
	now := time.Now()
	q.ageLocked(now)
	q.armLocked(now)
}

// Give gives the place back. It must be called once.
func (b *Brief) Give() {
	q := b.of
	q.mu.Lock()
	defer q.mu.Unlock()
	b.over = true
	if b.aged {
		b.node.age(-1)
	}
	q.giveLocked(b.node)
	b.node = nil
}

// takerLocked returns the node of a line that has a place.
func (q *Queue) takerLocked(line Line) *node {
	if q.recent != nil && q.recent.line == line {
		return q.recent
	}
	n := q.root.children[line.Tenant()]
	if line.Caller != "" {
		n = n.children[line]
	}
	return n
}

func (q *Queue) giveLocked(n *node) {
	n.take(-1)
	q.readyLocked(n)
	q.serveLocked()
	q.dropLocked(n)
}

// nodeLocked returns the node of a line, which is there from now on.
func (q *Queue) nodeLocked(line Line) *node {
	if q.recent != nil && q.recent.line == line {
		return q.recent
	}
	n := q.childLocked(&q.root, line.Tenant())
	if line.Caller != "" {
		n = q.childLocked(n, line)
	}
	q.recent = n
	return n
}

func (q *Queue) childLocked(parent *node, line Line) *node {
	n := parent.children[line]
	if n != nil {
		return n
	}
	if last := len(q.spare) - 1; last >= 0 {
		n, q.spare = q.spare[last], q.spare[:last]
	} else {
		n = &node{}
	}
	n.parent, n.line = parent, line
	if parent.children == nil {
		parent.children = map[Line]*node{}
	}
	parent.children[line] = n
	return n
}

// dropLocked forgets a node, and what is above it, if nothing of it is needed.
func (q *Queue) dropLocked(n *node) {
	for n.parent != nil && n.taken == 0 && n.waiting.Len() == 0 && len(n.children) == 0 {
		parent := n.parent
		delete(parent.children, n.line)
		if q.recent == n {
			q.recent = nil
		}
		if q.beside > 0 {
			if parent.latest.line != n.line {
				parent.other = parent.latest
			}
			parent.latest = left{n.line, time.Now()}
			if len(parent.children) == 1 {
				for other := range maps.Values(parent.children) {
					q.readyLocked(other)
				}
			}
		}
		delete(q.kept, n)
		n.parent, n.latest, n.other = nil, left{}, left{}
		if len(q.spare) < maxSpare {
			q.spare = append(q.spare, n)
		}
		n = parent
	}
}

// take adds to what a node has taken, and to all above it.
func (n *node) take(places int) {
	for ; n != nil; n = n.parent {
		n.taken += places
	}
}

// age adds to how many of a node's places have come of age, and to all above it.
func (n *node) age(places int) {
	for ; n != nil; n = n.parent {
		n.aged += places
	}
}

// freeLocked reports whether a node may have one place more, and so may all above it.
func (q *Queue) freeLocked(n *node) bool {
	for ; n != nil; n = n.parent {
		if !q.mayLocked(n) {
			return false
		}
	}
	return true
}

// mayLocked reports whether a node's own bounds allow it one place more.
func (q *Queue) mayLocked(n *node) bool {
	if n.parent == nil {
		return q.limit < 0 || n.taken < q.limit
	}
	if q.beside == 0 || n.taken-n.aged < q.beside {
		return true
	}
	return len(n.parent.children) == 1 && !time.Now().Before(n.aloneAt())
}

// aloneAt is when a node that is its parent's only child counts as alone.
func (n *node) aloneAt() time.Time {
	other := n.parent.latest
	if other.line == n.line {
		other = n.parent.other
	}
	if other.at.IsZero() {
		return other.at
	}
	return other.at.Add(lately)
}

// readyLocked puts a node, and those above it, among those that can be served, or
// takes them out. A node that its own bound keeps out is looked at again when it gives
// back a place, and when it has been alone for long enough.
func (q *Queue) readyLocked(n *node) {
	for ; n.parent != nil; n = n.parent {
		waits := n.waiting.Len()+n.ready.Len() > 0
		ready := waits && q.mayLocked(n)
		if waits && !ready && q.beside > 0 && len(n.parent.children) == 1 {
			q.keepLocked(n)
		}
		switch {
		case ready && n.inReady == nil:
			n.inReady = n.parent.ready.PushBack(n)
		case !ready && n.inReady != nil:
			n.parent.ready.Remove(n.inReady)
			n.inReady = nil
		}
	}
}

// keepLocked has a node looked at again when it counts as alone.
func (q *Queue) keepLocked(n *node) {
	if q.kept == nil {
		q.kept = map[*node]struct{}{}
	}
	q.kept[n] = struct{}{}
	at := n.aloneAt()
	if !q.lookAt.IsZero() && !at.Before(q.lookAt) {
		return
	}
	q.lookAt = at
	if q.look == nil {
		q.look = time.AfterFunc(time.Until(at), q.lookAgain)
	} else {
		q.look.Reset(time.Until(at))
	}
}

func (q *Queue) lookAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.kept
	q.kept, q.lookAt = nil, time.Time{}
	for n := range kept {
		q.readyLocked(n)
	}
	q.serveLocked()
}

// serveLocked gives out the places that are free, in turn.
func (q *Queue) serveLocked() {
	for q.root.ready.Len() > 0 && q.mayLocked(&q.root) {
		n := &q.root
		for n.ready.Len() > 0 { // down to the session whose turn it is
			first := n.ready.Front()
			n.ready.MoveToBack(first)
			n = first.Value.(*node)
		}
		if !q.freeLocked(n) { // another caller or session has come meanwhile
			q.readyLocked(n)
			continue
		}
		close(n.waiting.Remove(n.waiting.Front()).(chan struct{}))
		q.waiting--
		n.take(1)
		q.readyLocked(n)
	}
}
