package urimatch

import (
	"cmp"
	"maps"
	"slices"
)

// Index finds, of all templates that a URI matches, the most specific one: the one
// with the longest literal beginning, then with the most literal bytes, then with the
// fewest expressions that match reserved characters, then the one that was added first.
// It is not changed after Sort, and may then be used from any goroutine.
type Index[T any] struct {
	byPrefix map[string][]indexed[T]
	lengths  []int // of the prefixes there are, the longest first
}

type indexed[T any] struct {
	*Template
	value T
}

// Add adds a template and what Find returns for it.
func (x *Index[T]) Add(t *Template, value T) {
	if x.byPrefix == nil {
		x.byPrefix = map[string][]indexed[T]{}
	}
	x.byPrefix[t.prefix] = append(x.byPrefix[t.prefix], indexed[T]{t, value})
}

// Sort must be called after the last Add.
func (x *Index[T]) Sort() {
	lengths := map[int]bool{}
	for prefix, of := range x.byPrefix {
		lengths[len(prefix)] = true
		slices.SortStableFunc(of, func(a, b indexed[T]) int {
			return cmp.Or(cmp.Compare(b.literals, a.literals), cmp.Compare(a.wide, b.wide))
		})
	}
	x.lengths = slices.SortedFunc(maps.Keys(lengths), func(a, b int) int { return cmp.Compare(b, a) })
}

// maxCompared bounds what one Find compares, in steps of 64 positions of the URI: each takes
// about a nanosecond, and a template as many for each literal byte, and some for each variable.
const maxCompared = 64 << 10

// Find returns what was added with the most specific template that a URI matches. A long URI
// is compared with the most specific templates alone (SPEC S2).
func (x *Index[T]) Find(uri string) (value T, ok bool) {
	if len(uri) > maxURI {
		return value, false
	}
	var s subject // is read once a template encloses the URI
	var buf [96]uint64
	for _, n := range x.lengths {
		if n > len(uri) {
			continue
		}
		for _, t := range x.byPrefix[uri[:n]] {
			if !t.encloses(uri) {
				continue
			}
			if s.words == 0 {
				s = newSubject(uri, buf[:])
			}
			switch matches := s.matches(t.Template); {
			case s.left < 0:
				return value, false
			case matches:
				return t.value, true
			}
		}
	}
	return value, false
}
