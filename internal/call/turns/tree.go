package turns

import (
	"maps"
	"time"
)

// takerLocked returns the node of an owner that has a place.
func (q *Queue) takerLocked(owner Owner) *node {
	if q.recent != nil && q.recent.owner == owner {
		return q.recent
	}
	n := q.root.children[owner.Tenant()]
	if owner.Caller != "" {
		n = n.children[owner]
	}
	return n
}

func (q *Queue) giveLocked(n *node, unseen int) {
	n.take(-1)
	q.readyLocked(n)
	q.serveLocked()
	q.dropLocked(n, unseen)
}

// nodeLocked returns the node of an owner, which is there from now on.
func (q *Queue) nodeLocked(owner Owner) *node {
	if q.recent != nil && q.recent.owner == owner {
		return q.recent
	}
	n := q.childLocked(&q.root, owner.Tenant())
	if owner.Caller != "" {
		n = q.childLocked(n, owner)
	}
	q.recent = n
	return n
}

func (q *Queue) childLocked(parent *node, owner Owner) *node {
	n := parent.children[owner]
	if n != nil {
		return n
	}
	if last := len(q.spare) - 1; last >= 0 {
		n, q.spare = q.spare[last], q.spare[:last]
	} else {
		n = &node{}
	}
	n.parent, n.owner = parent, owner
	if parent.children == nil {
		parent.children = map[Owner]*node{}
	}
	parent.children[owner] = n
	return n
}

// dropLocked forgets a node, and what is above it, if nothing of it is needed. unseen says how many of these, n first, do
// not count as present afterwards.
func (q *Queue) dropLocked(n *node, unseen int) {
	for n.parent != nil && n.taken == 0 && n.waiting.Len() == 0 && len(n.children) == 0 {
		parent := n.parent
		delete(parent.children, n.owner)
		if q.recent == n {
			q.recent = nil
		}
		if q.beside > 0 {
			if unseen <= 0 {
				if parent.latest.owner != n.owner {
					parent.other = parent.latest
				}
				parent.latest = left{n.owner, time.Now()}
			}
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
		n, unseen = parent, unseen-1
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
	if q.each > 0 && n.parent == &q.root && n.taken >= q.each {
		return false
	}
	if q.beside == 0 || n.taken-n.aged < q.beside {
		return true
	}
	return len(n.parent.children) == 1 && !time.Now().Before(n.aloneAt())
}

// aloneAt is when a node that is its parent's only child counts as alone.
func (n *node) aloneAt() time.Time {
	other := n.parent.latest
	if other.owner == n.owner {
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
