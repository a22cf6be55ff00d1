package turns

import (
	"context"
	"sync"
	"time"
)

// lately is how long a line is remembered that has left.
const lately = 10 * time.Second

// Lines bounds how much each line takes at once, where there is another: what is
// not bounded as a whole, such as what a program answers side by side, is still
// kept from being flooded. A line that is alone takes what it wants. Its methods
// may be called from any goroutine.
type Lines struct {
	most int64 // that a line may have beside others

	mu     sync.Mutex // guards what follows
	lines  map[string]*queue
	latest seen // the line that came last
	other  seen // the last one that came with another name
}

// seen is when a line came last.
type seen struct {
	name string
	at   time.Time
}

// queue is what a line has, and who waits in it.
type queue struct {
	taken   int64
	waiting []chan struct{} // closed in turn
}

// NewLines returns Lines of which each may take most beside others.
func NewLines(most int64) *Lines { return &Lines{most: most, lines: map[string]*queue{}} }

// Try takes one for a line if that needs no waiting.
func (l *Lines) Try(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tryLocked(name)
}

func (l *Lines) tryLocked(name string) bool {
	l.seeLocked(name)
	q := l.lines[name]
	if q == nil {
		q = &queue{}
		l.lines[name] = q
	}
	if len(q.waiting) > 0 || !l.mayLocked(name, q) {
		return false
	}
	q.taken++
	return true
}

// Take takes one for a line, and waits for it until ctx ends; its error is ctx's
// cause. What is taken has to be given back.
func (l *Lines) Take(ctx context.Context, name string) error {
	l.mu.Lock()
	if l.tryLocked(name) {
		l.mu.Unlock()
		return nil
	}
	q, turn := l.lines[name], make(chan struct{})
	q.waiting = append(q.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.leave(name, q, turn)
	return context.Cause(ctx)
}

// Give gives back one of a line.
func (l *Lines) Give(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveLocked(name, l.lines[name])
}

func (l *Lines) giveLocked(name string, q *queue) {
	q.taken--
	for len(q.waiting) > 0 && l.mayLocked(name, q) {
		close(q.waiting[0])
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		q.taken++
	}
	if q.taken == 0 {
		delete(l.lines, name) // nobody waits in it: one may always be taken
	}
}

// leave gives up a turn, or what came of it meanwhile.
func (l *Lines) leave(name string, q *queue, turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn:
		l.giveLocked(name, q)
		return
	default:
	}
	for i, other := range q.waiting {
		if other == turn {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
}

// seeLocked notes that a line has come.
func (l *Lines) seeLocked(name string) {
	if l.latest.name != name {
		l.other = l.latest
	}
	l.latest = seen{name, time.Now()}
}

// mayLocked reports whether a line may have one more.
func (l *Lines) mayLocked(name string, q *queue) bool {
	if q.taken < l.most {
		return true
	}
	if len(l.lines) > 1 {
		return false
	}
	other := l.latest
	if other.name == name {
		other = l.other
	}
	return time.Since(other.at) > lately
}
