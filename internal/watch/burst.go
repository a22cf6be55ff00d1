package watch

import "time"

// burst is a run of events that ends when it has been quiet for a while, or has
// gone on for too long. Its timer is waited for by its owner's select and by
// nobody else.
type burst struct {
	quiet   time.Duration
	maxWait time.Duration
	timer   *time.Timer

	open   bool
	began  time.Time
	change Change
}

func newBurst(quiet, maxWait time.Duration) *burst {
	t := time.NewTimer(maxWait)
	t.Stop()
	return &burst{quiet: quiet, maxWait: maxWait, timer: t}
}

// add counts one event. The first names the burst.
func (b *burst) add(path string) {
	now := time.Now()
	if !b.open {
		b.open, b.began, b.change.Path = true, now, path
	}
	b.change.At = now
	b.timer.Reset(min(b.quiet, b.began.Add(b.maxWait).Sub(now)))
}

// due is ready once the burst is over. It stays silent while there is none.
func (b *burst) due() <-chan time.Time { return b.timer.C }

// end closes the burst and returns what it amounts to; the next event opens another.
func (b *burst) end() Change {
	b.open = false
	return b.change
}

func (b *burst) stop() { b.timer.Stop() }
