package watch

import "time"

// burst is a run of events that ends when it has been quiet for a while, or has
// gone on for too long. Its timer is waited for by its owner's select and by
// nobody else.
type burst struct {
	quiet   time.Duration
	maxWait time.Duration
	timer   *time.Timer

	open  bool
	began time.Time
}

func newBurst(quiet, maxWait time.Duration) *burst {
	t := time.NewTimer(maxWait)
	t.Stop()
	return &burst{quiet: quiet, maxWait: maxWait, timer: t}
}

// add counts one event and reports whether the burst goes on: it does not if
// it has lasted for too long already.
func (b *burst) add() bool {
	now := time.Now()
	if !b.open {
		b.open, b.began = true, now
	}
	wait := min(b.quiet, b.began.Add(b.maxWait).Sub(now))
	b.timer.Reset(wait)
	return wait > 0
}

// due is ready once the burst is over. It stays silent while there is none.
func (b *burst) due() <-chan time.Time { return b.timer.C }

// end closes the burst; the next event opens another.
func (b *burst) end() {
	b.timer.Stop()
	b.open = false
}

func (b *burst) stop() { b.timer.Stop() }
