package simple

import (
	"context"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/turns"
)

// Slots bounds how many calls run something on this machine at once. Those that
// wait are served in turn, by caller and then by session (internal/turns).
type Slots struct{ places *turns.Queue }

// NewSlots returns Slots with n places.
func NewSlots(n int) *Slots { return &Slots{turns.NewQueue(n)} }

// Resize makes the places n. Who has one keeps it, also where there are fewer now.
func (s *Slots) Resize(n int) { s.places.Resize(n) }

// Free returns how many places are free now.
func (s *Slots) Free() int { return s.places.Free() }

// Waiting returns how many wait for a place.
func (s *Slots) Waiting() int { return s.places.Waiting() }

// Take waits for a place in a line, inside ctx's deadline. On nil Slots there
// always is one.
func (s *Slots) Take(ctx context.Context, line turns.Line) error {
	if s == nil {
		return nil
	}
	cause := s.places.Take(ctx, line)
	switch {
	case cause == nil:
		return nil
	case fault.CodeOf(cause) == fault.Timeout:
		return fault.Wrap(fault.Timeout, cause, "no place to run became free before the deadline: %d calls run at once at most", s.places.Limit())
	}
	return fault.From(cause)
}

// Give gives back a place that Take has taken.
func (s *Slots) Give(line turns.Line) {
	if s != nil {
		s.places.Give(line)
	}
}
