package history

import (
	"context"
	"iter"
)

// maxQueued bounds what waits for a follower, in bytes of JSON. A line costs
// lineCost beside.
const (
	maxQueued = 512 << 10
	lineCost  = 128
)

// follower is somebody who wants lines as they come. Its fields but news are
// guarded by the History's mu.
type follower struct {
	query Query
	queue []queued
	bytes int           // of the queue
	lost  int           // lines, since the last one that was queued
	news  chan struct{} // holds one word that the queue is not empty
}

// queued is a line, and how many were lost before it.
type queued struct {
	Line
	lost int
}

// take queues a line, or counts it as lost. The caller holds the History's mu.
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
	default: // it has been told
	}
}

// Follow returns the lines that Last would, and then those that come, until ctx
// ends. No line is missed or comes twice in between. The number beside a line
// says how many were dropped before it because they were not taken in time.
//
// It begins as it is ranged over, and costs nothing before and after.
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
		for _, line := range pick(q, records) {
			if ctx.Err() != nil || !yield(line, 0) {
				return
			}
		}
		for {
			select {
			case <-f.news:
			case <-ctx.Done():
				return
			}
			for _, line := range h.queuedFor(f) {
				if ctx.Err() != nil || !yield(line.Line, line.lost) {
					return
				}
			}
		}
	}
}

// queuedFor takes what waits for a follower.
func (h *History) queuedFor(f *follower) []queued {
	h.mu.Lock()
	defer h.mu.Unlock()
	queue := f.queue
	f.queue, f.bytes = nil, 0
	return queue
}
