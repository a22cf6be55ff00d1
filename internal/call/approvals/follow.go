package approvals

import (
	"container/list"
	"context"
	"iter"
	"slices"
	"time"
)

// changes has the records in the order in which they have changed last, so that who follows them looks at no others.
type changes struct {
	order   *list.List // of *entry, the one that has changed last at the end
	serial  uint64     // of the last change
	changed chan struct{}
}

// place is where a record is in the order.
type place struct {
	at     *list.Element
	serial uint64
	shown  shown
}

// shown is what changes of a record.
type shown struct {
	phase         Phase
	expires, used time.Time
}

func newChanges() changes { return changes{order: list.New(), changed: make(chan struct{})} }

// noteChangeLocked tells whoever follows the records that one is new or has changed.
func (c *changes) noteChangeLocked(e *entry) {
	now := shown{e.Phase, e.Expires, e.Used}
	if e.at != nil && now == e.shown {
		return
	}
	c.serial++
	e.serial, e.shown = c.serial, now
	if e.at == nil {
		e.at = c.order.PushBack(e)
	} else {
		c.order.MoveToBack(e.at)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *changes) forgetLocked(e *entry) {
	c.order.Remove(e.at)
	e.at = nil
}

// Since returns the records that are new or have changed after a number of changes, the one that changed first first,
// and how many changes there were. later is closed at the next one.
func (s *Store) Since(n uint64) (changed []Record, now uint64, later <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := s.order.Back(); at != nil; at = at.Prev() {
		e, _ := at.Value.(*entry)
		if e.serial <= n {
			break
		}
		changed = append(changed, e.Record)
	}
	slices.Reverse(changed)
	return changed, s.serial, s.changed
}

// Follow yields the records that are there and for which first reports true, the oldest first, and then each that
// is new or has changed, until ctx ends. What changes while the caller looks at another record is yielded as it
// is then.
func (s *Store) Follow(ctx context.Context, first func(*Record) bool) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		all, now, later := s.Since(0)
		slices.SortFunc(all, compareAge)
		all = slices.DeleteFunc(all, func(r Record) bool { return !first(&r) })
		for {
			for _, r := range all {
				if !yield(r) {
					return
				}
			}
			select {
			case <-later:
			case <-ctx.Done():
				return
			}
			all, now, later = s.Since(now)
		}
	}
}
