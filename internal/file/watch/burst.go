package watch

import "time"

// burst is a series of events. It ends when no event has come for a while, or when it has lasted too
// long. Only the owner's select may wait for its timer.
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

// add counts one event. It reports false if the burst has already lasted too long.
func (b *burst) add() bool {
	now := time.Now()
	if !b.open {
		b.open, b.began = true, now
	}
	wait := min(b.quiet, b.began.Add(b.maxWait).Sub(now))
	b.timer.Reset(wait)
	return wait > 0
}

// due is ready once the burst is over. It is never ready if there is no burst.
func (b *burst) due() <-chan time.Time { return b.timer.C }

// end closes the burst; the next event starts another one.
func (b *burst) end() {
	b.timer.Stop()
	b.open = false
}

func (b *burst) stop() { b.timer.Stop() }
