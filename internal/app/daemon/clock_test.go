package daemon

import (
	"testing"
	"time"
	"unsafe"
)

// setBack returns a moment by a clock that was set back by that many seconds.
func setBack(at time.Time, seconds uint64) time.Time {
	const nanosecondBits = 30                                    // below the seconds, of a time that has the monotonic clock too
	*(*uint64)(unsafe.Pointer(&at)) -= seconds << nanosecondBits //nolint:gosec // nothing else sets one of the two clocks alone
	return at
}

// SPEC J2: how long something has been so is right also after the machine's clock was set back.
func TestJ2DurationsAfterTheClockWasSetBack(t *testing.T) {
	began := time.Now()
	now := began.Add(time.Minute)
	for what, c := range map[string]struct{ at, now, want time.Time }{
		"as it was":      {began, now, began},
		"set back":       {began, setBack(now, 3600), setBack(began, 3600)},
		"a later start":  {now, setBack(began, 3600), setBack(now, 3600)},
		"set ahead":      {setBack(began, 3600), now, setBack(began, 3600)},
		"never":          {time.Time{}, setBack(now, 3600), time.Time{}},
		"of another run": {began.Round(0), setBack(now, 30), began},
	} {
		if got := byClock(c.at, c.now); !got.Round(0).Equal(c.want.Round(0)) {
			t.Errorf("%s: %v, want %v", what, got.Round(0), c.want.Round(0))
		}
	}
}
