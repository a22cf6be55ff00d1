package tail

import (
	"sync"
	"time"
)

// What a Quota allows in each window.
const (
	QuotaWindow = 10 * time.Second
	QuotaLines  = 2000
	QuotaBytes  = 1 << 20
)

// Quota bounds how much of its stderr one tool writes to the log: QuotaLines lines of QuotaBytes
// bytes together in each QuotaWindow. The zero value is ready for use. Its methods may be called
// from any goroutine.
type Quota struct {
	mu           sync.Mutex // guards the fields that follow
	ends         time.Time  // end of the window
	lines, bytes int        // allowed so far in it
	left         int        // lines that were refused, until Left returns them
	leftBytes    int
}

// Allow reports whether a line of n bytes may be logged. If not, it calls report once at the end of
// the window; report then calls Left.
func (q *Quota) Allow(n int, report func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if !now.Before(q.ends) {
		q.ends, q.lines, q.bytes = now.Add(QuotaWindow), 0, 0
	}
	if q.lines < QuotaLines && q.bytes+n <= QuotaBytes {
		q.lines++
		q.bytes += n
		return true
	}
	if q.left == 0 {
		time.AfterFunc(q.ends.Sub(now), report)
	}
	q.left++
	q.leftBytes += n
	return false
}

// Left returns how much was refused since its last call.
func (q *Quota) Left() (lines, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, bytes = q.left, q.leftBytes
	q.left, q.leftBytes = 0, 0
	return lines, bytes
}
