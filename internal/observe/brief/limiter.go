package brief

import (
	"sync"
	"time"
)

// Limiter lets a few lines of the log pass each minute, and counts the others. Its zero value is ready to
// use, and Allow may be called from any goroutine.
type Limiter struct {
	mu    sync.Mutex // guards the fields that follow
	since time.Time
	shown int
	left  int
}

// Allow reports whether a line may be logged, which is one of most in a minute, and how many were not since
// the last one that was.
func (l *Limiter) Allow(most int) (ok bool, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= time.Minute {
		l.since, l.shown = now, 0
	}
	if l.shown >= most {
		l.left++
		return false, 0
	}
	l.shown++
	left, l.left = l.left, 0
	return true, left
}
