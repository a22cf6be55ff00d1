package history

import (
	"context"
	"iter"
	"slices"
	"time"
)

// maxQueued bounds the lines that wait for a follower, in bytes of JSON. Each line counts lineCost
// more.
const (
	maxQueued = 512 << 10
	lineCost  = 128
)

// follower receives new lines. History.mu guards its fields except news.
type follower struct {
	query Query
	queue []queued
	bytes int           // of the lines in queue
	lost  int           // lines dropped since the last one that was queued
	news  chan struct{} // holds a value if the queue is not empty
}

// queued is a line, and how many were dropped before it.
type queued struct {
	Line
	lost int
}

// take queues a line, or counts it as dropped. The caller holds History.mu.
func (f *follower) take(line Line) {
	size := len(line.JSON) + lineCost
	if f.bytes+size > maxQueued {
		f.lost++
		return
	}
	f.queue = append(f.queue, queued{line, f.lost})
	f.bytes += size
	f.lost = 0
	select {
	case f.news <- struct{}{}:
	default: // a value is pending
	}
}

// Follow returns the lines that Last would return, and then new ones until ctx ends. No line is
// missed or comes twice in between. The number with a line says how many were dropped before it
// because the caller was too slow.
//
// It begins when it is ranged over, and uses nothing before and after.
func (h *History) Follow(ctx context.Context, q Query) iter.Seq2[Line, int] {
	return func(yield func(Line, int) bool) {
		f := &follower{query: q, news: make(chan struct{}, 1)}
		h.mu.Lock()
		records := h.records(q)
		h.followers[f] = struct{}{}
		h.mu.Unlock()
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.followers, f)
		}()
		past := slices.Values(pick(q, records))
		if q.Past != nil {
			past = q.Past(slices.Collect(past))
		}
		for line := range past {
			if ctx.Err() != nil || !yield(line, 0) {
				return
			}
		}
		for looked := (time.Time{}); ; {
			select {
			case <-f.news:
			case <-ctx.Done():
				return
			}
			if q.Pace > 0 {
				if !pause(ctx, q.Pace-time.Since(looked)) {
					return
				}
				looked = time.Now()
			}
			for _, line := range h.queuedFor(f) {
				if ctx.Err() != nil || !yield(line.Line, line.lost) {
					return
				}
			}
		}
	}
}

// pause waits for d. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// queuedFor returns and empties a follower's queue.
func (h *History) queuedFor(f *follower) []queued {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := f.queue
	f.queue, f.bytes = nil, 0
	return queue
}
