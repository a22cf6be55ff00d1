package approvals

import (
	"cmp"
	"slices"
)

// List returns all records, the oldest first.
func (s *Store) List() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Record, 0, len(s.all))
	for _, e := range s.all {
		list = append(list, e.Record)
	}
	slices.SortFunc(list, compareAge)
	return list
}

func compareAge(a, b Record) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// Pending returns how many records nobody has decided about.
func (s *Store) Pending() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.open {
		if e.Phase == Pending {
			n++
		}
	}
	return n
}

// Has reports whether there is a record.
func (s *Store) Has(id string) bool {
	_, ok := s.Record(id)
	return ok
}

// Record returns a record as it is now.
func (s *Store) Record(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[id]; e != nil {
		return e.Record, true
	}
	return Record{}, false
}

// Get returns a record, and the last one of the same caller and tool that was approved before it, nil if there
// is none.
func (s *Store) Get(id string) (r Record, last *Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	if e == nil {
		return Record{}, nil, ErrUnknown
	}
	for _, other := range s.all {
		if other != e && other.Phase == Approved && other.Caller == e.Caller && other.Tool == e.Tool &&
			other.Created.Before(e.Created) && (last == nil || other.Decided.After(last.Decided)) {
			last = &other.Record
		}
	}
	if last != nil {
		found := *last
		last = &found
	}
	return e.Record, last, nil
}
