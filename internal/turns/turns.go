// Package turns bounds how much of something is taken at once, and lets those
// who wait for it take turns.
//
// Who waits stands in a line, which has a name, and the lines are served in turn,
// one of each at a time. So whoever asks a thousand times at once waits a thousand
// times as long for the last answer, and keeps nobody else waiting for more than
// one turn.
//
// Its invariant: what is taken is never more than the limit, but for one who wants
// more than all of it and has it alone.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Turns is something of which there is so much. Its methods may be called from
// any goroutine.
type Turns struct {
	mu      sync.Mutex // guards what follows
	limit   int64
	taken   int64
	waiting int
	lines   []*line // those in which somebody waits; the first is served next
}

// line is who waits under one name, in order.
type line struct {
	name    string
	waiting []*waiter
}

type waiter struct {
	wants int64
	turn  chan struct{} // closed when it has what it wants
}

// New returns Turns of which limit may be taken at once.
func New(limit int64) *Turns { return &Turns{limit: limit} }

// Resize sets the limit. Who has something keeps it, also where there is less now.
func (t *Turns) Resize(limit int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = limit
	t.serveLocked()
}

// Limit returns how much may be taken at once.
func (t *Turns) Limit() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limit
}

// Free returns how much nobody has taken.
func (t *Turns) Free() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.limit-t.taken)
}

// Waiting returns how many wait.
func (t *Turns) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting
}

// Try takes n if that needs no waiting.
func (t *Turns) Try(n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting > 0 || !t.fitsLocked(n) {
		return false
	}
	t.taken += n
	return true
}

// Take takes n, and waits for it in the line of a name until ctx ends; its error
// is ctx's cause. What is taken has to be given back.
func (t *Turns) Take(ctx context.Context, name string, n int64) error {
	if t.Try(n) {
		return nil
	}
	w := &waiter{wants: n, turn: make(chan struct{})}
	t.join(name, w)
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.leave(name, w)
	return context.Cause(ctx)
}

// Give gives back n.
func (t *Turns) Give(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken -= n
	t.serveLocked()
}

// fitsLocked reports whether n may be taken. What is more than there is at all
// may be taken by one who is alone.
func (t *Turns) fitsLocked(n int64) bool {
	return t.taken+n <= t.limit || t.taken == 0 && t.limit > 0
}

func (t *Turns) join(name string, w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting++
	i := slices.IndexFunc(t.lines, func(l *line) bool { return l.name == name })
	if i < 0 {
		i = len(t.lines)
		t.lines = append(t.lines, &line{name: name})
	}
	t.lines[i].waiting = append(t.lines[i].waiting, w)
	t.serveLocked() // something may have been given back this very moment
}

// leave gives up a turn, or what came of it meanwhile.
func (t *Turns) leave(name string, w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.turn:
		t.taken -= w.wants
	default:
		i := slices.IndexFunc(t.lines, func(l *line) bool { return l.name == name })
		l := t.lines[i]
		l.waiting = slices.DeleteFunc(l.waiting, func(other *waiter) bool { return other == w })
		t.waiting--
		if len(l.waiting) == 0 {
			t.lines = slices.Delete(t.lines, i, i+1)
		}
	}
	t.serveLocked()
}

// serveLocked gives what there is to whose turn it is.
func (t *Turns) serveLocked() {
	for len(t.lines) > 0 {
		l := t.lines[0]
		next := l.waiting[0]
		if !t.fitsLocked(next.wants) {
			return // who comes later must not keep it waiting for ever
		}
		t.taken += next.wants
		t.waiting--
		close(next.turn)
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		t.lines[0] = nil
		t.lines = t.lines[1:]
		if len(l.waiting) > 0 {
			t.lines = append(t.lines, l)
		}
	}
}
