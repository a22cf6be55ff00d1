package simple

import (
	"context"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/fault"
)

// Slots bounds how many calls run something on this machine at once. Waiters are
// served in order.
type Slots struct {
	mu      sync.Mutex // guards what follows
	places  int
	taken   int
	waiting []chan struct{} // closed when its waiter has a place
}

// NewSlots returns Slots with n places.
func NewSlots(n int) *Slots { return &Slots{places: n} }

// Resize makes the places n. Who has one keeps it, also where there are fewer now.
func (s *Slots) Resize(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = n
	s.serveLocked()
}

// Free returns how many places are free now.
func (s *Slots) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.places-s.taken)
}

// Waiting returns how many wait for a place.
func (s *Slots) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Take waits for a place inside ctx's deadline. On nil Slots there always is one.
func (s *Slots) Take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	turn := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, turn)
	s.serveLocked()
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	places := s.leave(turn)
	cause := context.Cause(ctx)
	if fault.CodeOf(cause) == fault.Timeout {
		return fault.Wrap(fault.Timeout, cause, "no place to run became free before the deadline: %d calls run at once at most", places)
	}
	return fault.From(cause)
}

// leave gives up a turn, or the place that came of it meanwhile. It returns how
// many places there are.
func (s *Slots) leave(turn chan struct{}) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, turn); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else {
		s.taken--
	}
	s.serveLocked()
	return s.places
}

// Give gives back a place that Take has taken.
func (s *Slots) Give() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.serveLocked()
}

// serveLocked gives what is free to those who wait longest.
func (s *Slots) serveLocked() {
	for s.taken < s.places && len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		s.taken++
	}
}
