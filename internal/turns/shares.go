package turns

import (
	"context"
	"slices"
	"sync"
)

// Shares is something of which no line has more than it leaves free: one that is
// alone gets half of it, and one that comes later finds what it needs, as long as
// that is less than what is left. So a flood of one line keeps others from nothing,
// and one that never gives back keeps only what it has. Its methods may be called
// from any goroutine.
type Shares struct {
	mu      sync.Mutex // guards what follows
	limit   int64
	taken   int64
	by      map[string]int64 // what each line has; none has nothing
	waiting []*sharer        // in the order in which they came
}

type sharer struct {
	waiter
	name string
}

// NewShares returns Shares of which limit may be taken at once.
func NewShares(limit int64) *Shares { return &Shares{limit: limit, by: map[string]int64{}} }

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

// Try takes n for a line if there is room for it now.
func (s *Shares) Try(name string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fitsLocked(name, n) {
		return false
	}
	s.addLocked(name, n)
	return true
}

// Take takes n for a line, and waits for it until ctx ends; its error is ctx's
// cause. What is taken has to be given back.
func (s *Shares) Take(ctx context.Context, name string, n int64) error {
	s.mu.Lock()
	if s.fitsLocked(name, n) {
		s.addLocked(name, n)
		s.mu.Unlock()
		return nil
	}
	w := &sharer{waiter{wants: n, turn: make(chan struct{})}, name}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	s.leave(w)
	return context.Cause(ctx)
}

// Add takes n for a line whether there is room or not: of what is there already.
func (s *Shares) Add(name string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(name, n)
}

// Give gives back n of what a line has.
func (s *Shares) Give(name string, n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveLocked(name, n)
}

// fitsLocked reports whether a line may take n more. What is more than there is
// at all may be taken by one who is alone.
func (s *Shares) fitsLocked(name string, n int64) bool {
	return s.by[name]+n <= s.limit-s.taken || s.taken == 0
}

func (s *Shares) addLocked(name string, n int64) {
	s.taken += n
	s.by[name] += n
}

func (s *Shares) giveLocked(name string, n int64) {
	s.taken -= n
	if s.by[name] -= n; s.by[name] == 0 {
		delete(s.by, name)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w *sharer) bool {
		if !s.fitsLocked(w.name, w.wants) {
			return false
		}
		s.addLocked(w.name, w.wants)
		close(w.turn)
		return true
	})
}

// leave gives up waiting, or what came of it meanwhile.
func (s *Shares) leave(w *sharer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.turn:
		s.giveLocked(w.name, w.wants)
	default:
		s.waiting = slices.DeleteFunc(s.waiting, func(other *sharer) bool { return other == w })
	}
}
