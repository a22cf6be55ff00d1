package approvals

import (
	"context"

	"github.com/orla-project/orla/internal/call/turns"
)

// bounds are what callers share. They have locks of their own.
type bounds struct {
	writing    *turns.Queue  // of one write at a time: each takes as long as the disk
	shares     *turns.Shares // of maxOpen records
	bytes      *turns.Shares // of maxOpenBytes bytes, or fewer
	endedBytes int           // maxEndedBytes, or fewer
}

// turn waits until it is the turn of a caller to write, and returns what ends it.
func (s *Store) turn(caller string) (end func()) {
	owner := turns.Owner{Caller: caller}
	if s.writing.Take(context.Background(), owner) != nil { // only a context ends the wait
		return func() {}
	}
	return func() { s.writing.Give(owner) }
}

func (s *Store) callerOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[id]; e != nil {
		return e.Caller
	}
	return ""
}
