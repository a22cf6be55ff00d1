package approvals

import (
	"context"
	"iter"
	"time"
)

// Follow yields the records that are there and for which first reports true, the oldest first, and then each that
// is new or has changed, until ctx ends. What changes while the caller looks at another record is yielded as it
// is then.
func (s *Store) Follow(ctx context.Context, first func(*Record) bool) iter.Seq[Record] {
	type stamp struct {
		phase         Phase
		expires, used time.Time
	}
	return func(yield func(Record) bool) {
		var seen map[string]stamp // nil at first
		for {
			changed := s.Changed()
			list := s.List()
			now := make(map[string]stamp, len(list))
			for i := range list {
				r := &list[i]
				as := stamp{r.Phase, r.Expires, r.Used}
				now[r.ID] = as
				was, known := seen[r.ID]
				wanted := !known || was != as
				if seen == nil {
					wanted = first(r)
				}
				if wanted && !yield(*r) {
					return
				}
			}
			seen = now
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}
