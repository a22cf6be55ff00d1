package turns

import (
	"context"
	"time"
)

// TakeBriefly takes a place of a Queue that NewAging returned, as Take does. It is given
// back by Brief.Give.
func (q *Queue) TakeBriefly(ctx context.Context, owner Owner) (*Brief, error) {
	return q.TakeLonger(ctx, owner, 1)
}

// TakeLonger is TakeBriefly of a place that comes of age after so many moments: for what
// is known to work for longer.
func (q *Queue) TakeLonger(ctx context.Context, owner Owner, moments int) (*Brief, error) {
	b := &Brief{of: q, moments: moments}
	if err := q.take(ctx, owner, b); err != nil {
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
	unseen     int    // see unfelt
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

// Longer has the place count for so many moments from now on, also if it has come of age, and returns when they are
// over: for work whose size is known late. If the place was given back, or no other caller is present or was lately,
// it does nothing and returns the zero time.
func (b *Brief) Longer(moments int) (until time.Time) {
	q := b.of
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if b.over || q.aloneLocked(b.node, now) {
		return time.Time{}
	}
	until = now.Add(time.Duration(moments) * q.moment)
	for b.until.Before(until) {
		b.moments++
		b.until = b.until.Add(q.moment)
	}
	if b.aged {
		b.aged, b.since = false, now
		b.node.age(-1)
		q.putLocked(b)
		q.armLocked(now)
	}
	return until
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

// Give gives the place back. Give, GiveUnseen or GiveWithin must be called, once.
func (b *Brief) Give() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.giveLocked(b.unseen)
}

// GiveUnseen gives the place back as Give does. If its owner has no other one, it does not count as present
// afterwards: it goes on as another owner, as a client does that has begun a session.
func (b *Brief) GiveUnseen() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.giveLocked(1)
}

// unfelt has Give give the place back as GiveUnseen does, and its caller does not count as present afterwards either, if that has no
// other one.
func (b *Brief) unfelt() {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	b.unseen = 2 // the session and its caller
}

// GiveWithin gives the place back, and reports whether it was taken for less than d while
// another caller is present, or was lately.
func (b *Brief) GiveWithin(d time.Duration) bool {
	q := b.of
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	taken := b.until.Add(-time.Duration(b.moments) * q.moment)
	within := now.Sub(taken) < d && !q.aloneLocked(b.node, now)
	b.giveLocked(0)
	return within
}

func (b *Brief) giveLocked(unseen int) {
	b.over = true
	if b.aged {
		b.node.age(-1)
	}
	b.of.giveLocked(b.node, unseen)
	b.node = nil
}

// aloneLocked reports whether the caller of a session counts as alone.
func (q *Queue) aloneLocked(n *node, now time.Time) bool {
	for n.parent != &q.root {
		n = n.parent
	}
	return len(q.root.children) == 1 && !now.Before(n.aloneAt())
}
