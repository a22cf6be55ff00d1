package turns

import (
	"cmp"
	"container/list"
	"context"
	"sync"
)

// Shares bounds an amount of something and shares it between callers. No caller may have more than it leaves
// free: a caller that is alone gets half, and one that comes later gets what it needs, up to half of what
// is left. A session of a caller gets half of its caller's part, by the same rule. So a caller that takes
// as much as it can does not keep others from their part.
//
// Of those that wait, the one that would have the least is served first. Its methods may be called from any
// goroutine.
type Shares struct {
	mu       sync.Mutex // guards what follows
	limit    int64
	taken    int64
	sessions map[Owner]*session // that have something, or wait
	tenants  map[string]*tenant // the callers of these sessions, by name
	waiting  Heap[*tenant]      // whose sessions wait
	serial   int64
	spare    []*session // to be used again
	vacant   []*tenant  // the same of callers
	idle     *session   // that needs nothing since the last drop: it is kept, as it may be the next
	recent   *session   // that was looked up last, if there is one; as a rule it is the next
}

// tenant is a caller, or a session that stands for itself.
type tenant struct {
	Position
	has      int64 // what the caller has taken
	sessions int
	waiting  Heap[*session]
}

// session is one that has something, or waits.
type session struct {
	Position
	owner   Owner
	tenant  *tenant
	self    tenant    // the tenant of a session that stands for itself
	has     int64     // what the session has taken; 0 for one that stands for itself
	factor  int64     // of what it needs; see need
	waiters list.List // *sharer, in order
}

type sharer struct {
	n      int64
	serial int64 // in the order in which all came
	turn   chan struct{}
}

// NewShares returns Shares of an amount of limit.
func NewShares(limit int64) *Shares {
	return &Shares{limit: limit, sessions: map[Owner]*session{}, tenants: map[string]*tenant{}}
}

// Resize changes the limit. Owners keep what they have.
func (s *Shares) Resize(limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.serveLocked()
}

// Free returns how much is not taken.
func (s *Shares) Free() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.limit-s.taken)
}

// Taken returns how much is taken.
func (s *Shares) Taken() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Try takes n if there is room for it now.
func (s *Shares) Try(owner Owner, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessionLocked(owner)
	defer s.dropLocked(one)
	return s.tryLocked(one, n)
}

func (s *Shares) tryLocked(one *session, n int64) bool {
	if one.waiters.Len() > 0 {
		return false // earlier ones come first
	}
	if one.need(n)+one.tenant.has > s.limit-s.taken && s.taken > 0 {
		return false
	}
	s.addLocked(one, n)
	return true
}

// need is how much has to be free for a session to take n, without what its caller
// has. More than there is may be taken by one who is alone.
//
// A caller may have as much as it leaves free. A session s of a caller c may have
// half of what c may have, less what c has: 2·(s+n) + c ≤ free.
func (s *session) need(n int64) int64 { return s.factor * (s.has + n) }

// Take takes n, and waits for it until ctx ends. An error is ctx's cause. What is taken has to be given
// back.
func (s *Shares) Take(ctx context.Context, owner Owner, n int64) error {
	at := s.join(owner, n)
	if at == nil {
		return nil
	}
	w := at.Value.(*sharer)
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	s.leave(owner, at, w)
	return context.Cause(ctx)
}

// join takes n, or begins to wait for it: then it does not return nil.
func (s *Shares) join(owner Owner, n int64) *list.Element {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessionLocked(owner)
	if s.tryLocked(one, n) {
		return nil
	}
	s.serial++
	at := one.waiters.PushBack(&sharer{n: n, serial: s.serial, turn: make(chan struct{})})
	if one.waiters.Len() > 1 {
		return at
	}
	t := one.tenant
	t.waiting.Push(one)
	if t.waiting.Len() == 1 {
		s.waiting.Push(t)
	} else {
		s.waiting.Fix(t)
	}
	return at
}

// leave ends a wait, and gives back what it has just got.
func (s *Shares) leave(owner Owner, at *list.Element, w *sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.sessions[owner]
	select {
	case <-w.turn:
		s.giveLocked(one, w.n)
	default:
		one.waiters.Remove(at)
		s.movedLocked(one)
		s.dropLocked(one)
	}
}

// Give gives back n of what the owner has.
func (s *Shares) Give(owner Owner, n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked(s.knownLocked(owner), n)
}

func (s *Shares) giveLocked(one *session, n int64) {
	s.addLocked(one, -n)
	s.serveLocked()
	s.dropLocked(one)
}

// addLocked notes that a session has n more, or less.
func (s *Shares) addLocked(one *session, n int64) {
	t := one.tenant
	s.taken += n
	t.has += n
	if t != &one.self {
		one.has += n
		if one.waiters.Len() > 0 {
			t.waiting.Fix(one)
		}
	}
	if t.waiting.Len() > 0 {
		s.waiting.Fix(t)
	}
}

// sessionLocked returns the session of an owner, which is there from now on.
func (s *Shares) sessionLocked(owner Owner) *session {
	if one := s.knownLocked(owner); one != nil {
		return one
	}
	var one *session
	if last := len(s.spare) - 1; last >= 0 {
		one, s.spare = s.spare[last], s.spare[:last]
	} else {
		one = &session{}
	}
	one.owner, one.tenant, one.factor = owner, &one.self, 1
	if owner.Caller != "" {
		one.tenant, one.factor = s.tenants[owner.Caller], 2
		if one.tenant == nil {
			if last := len(s.vacant) - 1; last >= 0 {
				one.tenant, s.vacant = s.vacant[last], s.vacant[:last]
			} else {
				one.tenant = &tenant{}
			}
			s.tenants[owner.Caller] = one.tenant
		}
	}
	one.tenant.sessions++
	s.sessions[owner], s.recent = one, one
	return one
}

// knownLocked returns the session of an owner, nil if there is none.
func (s *Shares) knownLocked(owner Owner) *session {
	if s.recent == nil || s.recent.owner != owner {
		s.recent = s.sessions[owner]
	}
	return s.recent
}

// needed reports whether a session has something, or waits.
func (s *session) needed() bool {
	return s.waiters.Len() > 0 || s.has != 0 || s.tenant == &s.self && s.self.has != 0
}

// dropLocked forgets a session if nothing of it is needed: not at once, but when another
// one is dropped. One that comes and goes alone costs no more than a few comparisons.
func (s *Shares) dropLocked(one *session) {
	if one.needed() || one == s.idle {
		return
	}
	last := s.idle
	s.idle = one
	if last != nil && !last.needed() {
		s.forgetLocked(last)
	}
}

// forgetLocked forgets a session, and its caller if it was the last one of it.
func (s *Shares) forgetLocked(one *session) {
	t := one.tenant
	delete(s.sessions, one.owner)
	if s.recent == one {
		s.recent = nil
	}
	if t.sessions--; t.sessions == 0 && t != &one.self {
		delete(s.tenants, one.owner.Caller)
		if len(s.vacant) < maxSpare {
			s.vacant = append(s.vacant, t)
		}
	}
	one.owner, one.tenant = Owner{}, nil
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, one)
	}
}

// movedLocked puts a session in its place among those that wait when its waiters are
// others than before.
func (s *Shares) movedLocked(one *session) {
	t := one.tenant
	if one.waiters.Len() > 0 {
		t.waiting.Fix(one)
	} else {
		t.waiting.Remove(one)
	}
	if t.waiting.Len() > 0 {
		s.waiting.Fix(t)
	} else {
		s.waiting.Remove(t)
	}
}

// serveLocked gives those who wait what is free.
func (s *Shares) serveLocked() {
	for s.waiting.Len() > 0 {
		t := s.waiting.First()
		if need, _ := t.first(); need > s.limit-s.taken && s.taken > 0 {
			return // nobody needs less
		}
		one := t.waiting.First()
		w := one.waiters.Remove(one.waiters.Front()).(*sharer)
		s.movedLocked(one)
		s.addLocked(one, w.n)
		close(w.turn)
	}
}

// first is how much has to be free for the first that waits, and when that one came.
func (t *tenant) first() (n, serial int64) {
	n, serial = t.waiting.First().first()
	return t.has + n, serial
}

// first is the same, without what the caller has.
func (s *session) first() (n, serial int64) {
	w := s.waiters.Front().Value.(*sharer)
	return s.need(w.n), w.serial
}

// Before reports whether the first that waits of one tenant needs less than that of another.
func (t *tenant) Before(other *tenant) bool { return needsLess(t, other) }

// Before is the same for the sessions of a tenant.
func (s *session) Before(other *session) bool { return needsLess(s, other) }

func needsLess(one, other interface{ first() (n, serial int64) }) bool {
	a, since := one.first()
	b, later := other.first()
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(since, later)) < 0
}
