package watch

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// over reports whether the burst has come to its end by now.
func over(b *burst) bool {
	select {
	case <-b.due():
		return true
	default:
		return false
	}
}

func TestBurst(t *testing.T) {
	const quiet, maxWait = 100 * time.Millisecond, 2 * time.Second
	// Times are from the first event of the burst, in milliseconds.
	tests := []struct {
		name   string
		events []int
		ends   int
	}{
		{"one event ends after the quiet time", []int{0}, 100},
		{"each event starts the quiet time anew", []int{0, 50, 149, 200}, 300},
		{"an event as the quiet time runs out belongs to it", []int{0, 99}, 199},
		{"a stream ends at the longest wait", stream(0, 50, 3000), 2000},
		{"the last event shortens nothing", []int{0, 90, 180, 270}, 370},
		{"close to the longest wait the quiet time is cut", append(stream(0, 90, 1900), 1980), 2000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBurst(quiet, maxWait)
				defer b.stop()
				began := time.Now()
				for _, at := range tt.events {
					time.Sleep(time.Until(began.Add(time.Duration(at) * time.Millisecond)))
					if over(b) {
						break
					}
					b.add()
				}
				if len(tt.events) > 0 && time.Since(began) < time.Duration(tt.ends)*time.Millisecond {
					<-b.due()
				}
				if got := time.Since(began).Milliseconds(); got != int64(tt.ends) {
					t.Errorf("ended after %d ms, want %d", got, tt.ends)
				}
				b.end()
			})
		})
	}
}

func TestBurstIsSilentWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(time.Millisecond, time.Second)
		defer b.stop()
		time.Sleep(time.Hour)
		if over(b) {
			t.Error("a burst without events came to an end")
		}
		b.add()
		<-b.due()
		b.end()
		time.Sleep(time.Hour)
		if over(b) {
			t.Error("a burst ended twice")
		}
		b.add()
		<-b.due()
		b.end()
	})
}

// stream lists the times from first up to end, in steps.
func stream(first, step, end int) []int {
	var at []int
	for ; first < end; first += step {
		at = append(at, first)
	}
	return at
}

// E2: at most MaxWait after the first event, also when more are under way.
func TestBurstThatHasLastedTooLongTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(time.Second, time.Second)
		defer b.stop()
		if !b.add() {
			t.Error("a new burst is over at once")
		}
		<-b.due()
		if b.add() {
			t.Error("a burst that has lasted as long as it may goes on")
		}
		b.end()
		time.Sleep(time.Hour)
		if over(b) {
			t.Error("a burst ended twice")
		}
	})
}

func TestUnreadChangeKeepsItsPathAndTakesTheLaterTime(t *testing.T) {
	w := New(t.TempDir(), Options{})
	earlier, later := time.Unix(1, 0), time.Unix(2, 0)
	w.publish(Change{Path: "first", At: earlier})
	w.publish(Change{Path: "second", At: later})
	if c := <-w.Changed(); c.Path != "first" || !c.At.Equal(later) {
		t.Errorf("got %+v, want path %q at %v", c, "first", later)
	}
	select {
	case c := <-w.Changed():
		t.Errorf("got a second Change %+v", c)
	default:
	}
}

// SPEC E2: what is found at the end of a burst and no event has told yet is no older
// than who began meanwhile, and may have read the file before.
func TestAChangeIsNoOlderThanWhatItTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "main.py")
		mustDo(t, os.WriteFile(file, []byte("0"), 0o600))
		w := New(dir, Options{Content: true, Poll: true, Debounce: pollInterval / 2})
		defer serving(t, w)()
		time.Sleep(pollInterval / 2)
		mustDo(t, os.WriteFile(file, []byte("first"), 0o600))
		time.Sleep(pollInterval/2 + pollInterval/4) // the next look has found it
		began := time.Now()
		mustDo(t, os.WriteFile(file, []byte("the second"), 0o600))
		time.Sleep(10 * pollInterval)
		select {
		case c := <-w.Changed():
			if c.At.Before(began) {
				t.Errorf("the change is %s older than what was written last", began.Sub(c.At))
			}
		default:
			t.Error("nothing has changed")
		}
	})
}
