package approvals

import (
	"context"
	"slices"

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

// dispensableLocked returns the oldest record of those that have ended, of the caller who has the most of what is short: so
// nobody who makes many calls has the past of others forgotten. There is such a record. It is not the newest one, which somebody
// is about to tell of, or may need again.
func (s *Store) dispensableLocked() *entry {
	old := s.ended[:max(1, len(s.ended)-1)]
	has, most := map[string]int{}, 0
	for _, e := range old {
		if len(s.ended) > maxEnded {
			has[e.Caller]++
		} else {
			has[e.Caller] += int(e.bytes())
		}
		most = max(most, has[e.Caller])
	}
	return old[slices.IndexFunc(old, func(e *entry) bool { return has[e.Caller] == most })]
}
