package secret

import (
	"fmt"
	"sync/atomic"
	"weak"
)

// MaxValues bounds the values of the variables of one tool together, in bytes: what it takes to find them
// is many times as much.
const MaxValues = MaxValue

// CheckSize returns an error if values have more than MaxValues bytes together.
func CheckSize(values []Value) error {
	size := 0
	for _, v := range values {
		size += len(v.Reveal())
	}
	if size > MaxValues {
		return fmt.Errorf("its secrets have %d bytes together, more than %d KiB; large ones fit into files that the tool reads", size, MaxValues>>10)
	}
	return nil
}

// Last makes Redactors, and reuses the last one if the values are the same, unless it was garbage-collected:
// making one takes longer than the rest of a short call. The zero value works, from any goroutine.
type Last struct {
	made atomic.Pointer[weak.Pointer[Redactor]]
}

// Redactor returns a Redactor of values.
func (l *Last) Redactor(values ...Value) *Redactor {
	if made := l.made.Load(); made != nil {
		if r := made.Value(); r.Of(values...) {
			return r
		}
	}
	r := NewRedactor(values...)
	made := weak.Make(r)
	l.made.Store(&made)
	return r
}
