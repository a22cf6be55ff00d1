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

// Quota bounds what one tool writes to the log of its stderr: QuotaLines lines, of
// QuotaBytes bytes together, in each QuotaWindow. Its zero value is ready, and its
// methods may be called from any goroutine.
type Quota struct {
	mu           sync.Mutex // guards what follows
	ends         time.Time  // the window
	lines, bytes int        // allowed in it
	left         int        // lines that were not, and not yet told
	leftBytes    int
}

// Allow reports whether a line of n bytes may be logged. It has report called at the
// end of a window in which one may not, which then asks Left.
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

// Left returns how much was not allowed since the last time.
func (q *Quota) Left() (lines, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, bytes = q.left, q.leftBytes
	q.left, q.leftBytes = 0, 0
	return lines, bytes
}
