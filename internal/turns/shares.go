package turns

import (
	"cmp"
	"container/heap"
	"container/list"
	"context"
	"sync"
)

// Shares is so much of something. No caller has more than it leaves free: one that
// is alone gets half, and one that comes later finds what it needs, as long as that
// is less than what is left. A session of a caller gets half of its caller's part,
// by the same rule. So a flood of one keeps others from nothing, and one that never
// gives back keeps only what it has.
//
// Of those who wait, the one that would have the least is served first. Its methods
// may be called from any goroutine.
type Shares struct {
	mu      sync.Mutex // guards what follows
	limit   int64
	taken   int64
	by      map[Line]int64   // what each caller has, and each session of one
	tenants map[Line]*tenant // whose sessions wait
	waiting needs[*tenant]   // the same
	serial  int64
}

// tenant is a caller that waits, with its sessions that do.
type tenant struct {
	place
	has      int64 // what the caller has taken
	sessions map[Line]*session
	waiting  needs[*session]
}

// session is one that waits.
type session struct {
	place
	line    Line
	has     int64     // what the session has taken; 0 for one without a caller
	factor  int64     // of what it needs; see need
	waiters list.List // *sharer, in order
}

type sharer struct {
	n      int64
	serial int64 // in the order in which all came
	turn   chan struct{}
}

// NewShares returns Shares of which limit may be taken at once.
func NewShares(limit int64) *Shares {
	return &Shares{limit: limit, by: map[Line]int64{}, tenants: map[Line]*tenant{}}
}

// Free returns how much nobody has taken.
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
func (s *Shares) Try(line Line, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryLocked(line, n)
}

func (s *Shares) tryLocked(line Line, n int64) bool {
	if t := s.tenants[line.Tenant()]; t != nil && t.sessions[line] != nil {
		return false // those before it come first
	}
	if s.needLocked(line, n) > s.limit-s.taken && s.taken > 0 {
		return false
	}
	s.addLocked(line, n)
	return true
}

// needLocked is how much has to be free for a line to take n. More than there is
// may be taken by one who is alone.
//
// A caller may have as much as it leaves free. A session s of a caller c may have
// half of what c may have, less what c has: 2·(s+n) + c ≤ free.
func (s *Shares) needLocked(line Line, n int64) int64 {
	if line.Caller == "" {
		return s.by[line] + n
	}
	return s.by[line.Tenant()] + 2*(s.by[line]+n)
}

// Take takes n, and waits for it until ctx ends; its error is ctx's cause. What is
// taken has to be given back.
func (s *Shares) Take(ctx context.Context, line Line, n int64) error {
	at := s.join(line, n)
	if at == nil {
		return nil
	}
	w := at.Value.(*sharer)
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	s.leave(line, at, w)
	return context.Cause(ctx)
}

// join takes n, or begins to wait for it: then it does not return nil.
func (s *Shares) join(line Line, n int64) *list.Element {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tryLocked(line, n) {
		return nil
	}
	s.serial++
	return s.joinLocked(line, &sharer{n: n, serial: s.serial, turn: make(chan struct{})})
}

// leave ends a wait, and gives back what it has just got.
func (s *Shares) leave(line Line, at *list.Element, w *sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.turn:
		s.addLocked(line, -w.n)
		s.serveLocked()
	default:
		t := s.tenants[line.Tenant()]
		one := t.sessions[line]
		one.waiters.Remove(at)
		s.movedLocked(t, one)
	}
}

// Add takes n whether there is room or not: of what is there already.
func (s *Shares) Add(line Line, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(line, n)
}

// Give gives back n.
func (s *Shares) Give(line Line, n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(line, -n)
	s.serveLocked()
}

// addLocked notes that a line has n more, or less.
func (s *Shares) addLocked(line Line, n int64) {
	of := line.Tenant()
	s.taken += n
	s.changeLocked(of, n)
	if line != of {
		s.changeLocked(line, n)
	}
	t := s.tenants[of]
	if t == nil {
		return
	}
	t.has = s.by[of]
	if one := t.sessions[line]; one != nil && line != of {
		one.has = s.by[line]
		heap.Fix(&t.waiting, one.at)
	}
	heap.Fix(&s.waiting, t.at)
}

func (s *Shares) changeLocked(of Line, n int64) {
	if has := s.by[of] + n; has != 0 {
		s.by[of] = has
	} else {
		delete(s.by, of)
	}
}

// joinLocked has a line wait.
func (s *Shares) joinLocked(line Line, w *sharer) *list.Element {
	of := line.Tenant()
	t := s.tenants[of]
	if t == nil {
		t = &tenant{has: s.by[of], sessions: map[Line]*session{}}
	}
	one := t.sessions[line]
	if one != nil {
		return one.waiters.PushBack(w)
	}
	one = &session{line: line, factor: 1}
	if line != of {
		one.has, one.factor = s.by[line], 2
	}
	at := one.waiters.PushBack(w)
	t.sessions[line] = one
	heap.Push(&t.waiting, one)
	if s.tenants[of] == nil {
		s.tenants[of] = t
		heap.Push(&s.waiting, t)
	} else {
		heap.Fix(&s.waiting, t.at)
	}
	return at
}

// movedLocked puts a session in its place among those that wait when its waiters
// are others than before, and forgets it when it has none.
func (s *Shares) movedLocked(t *tenant, one *session) {
	if one.waiters.Len() > 0 {
		heap.Fix(&t.waiting, one.at)
	} else {
		heap.Remove(&t.waiting, one.at)
		delete(t.sessions, one.line)
	}
	if len(t.waiting) > 0 {
		heap.Fix(&s.waiting, t.at)
	} else {
		heap.Remove(&s.waiting, t.at)
		delete(s.tenants, one.line.Tenant())
	}
}

// serveLocked gives those who wait what is free.
func (s *Shares) serveLocked() {
	for len(s.waiting) > 0 {
		t := s.waiting[0]
		if need, _ := t.need(); need > s.limit-s.taken && s.taken > 0 {
			return // nobody needs less
		}
		one := t.waiting[0]
		w := one.waiters.Remove(one.waiters.Front()).(*sharer)
		s.movedLocked(t, one)
		s.addLocked(one.line, w.n)
		close(w.turn)
	}
}

// place is where something stands in a heap.
type place struct{ at int }

func (p *place) put(at int) { p.at = at }

// need is how much has to be free for the first that waits, and when that one came.
func (t *tenant) need() (n, serial int64) {
	n, serial = t.waiting[0].need()
	return t.has + n, serial
}

func (s *session) need() (n, serial int64) {
	first := s.waiters.Front().Value.(*sharer)
	return s.factor * (s.has + first.n), first.serial
}

// needs is a heap of those that wait, the one that needs least first.
type needs[T interface {
	need() (n, serial int64)
	put(at int)
}] []T

func (h needs[T]) Len() int { return len(h) }
func (h needs[T]) Less(i, j int) bool {
	a, since := h[i].need()
	b, later := h[j].need()
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(since, later)) < 0
}

func (h needs[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].put(i)
	h[j].put(j)
}

func (h *needs[T]) Push(x any) {
	x.(T).put(len(*h))
	*h = append(*h, x.(T))
}

func (h *needs[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	var none T
	(*h)[last] = none
	*h = (*h)[:last]
	return x
}
