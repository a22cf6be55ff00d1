package governance

import (
	"fmt"
	"testing"
)

// SPEC S2: callers that make no call are remembered up to a bound, and one that does is counted for as long.
func TestS2IdleCallersAreBounded(t *testing.T) {
	var l limiter
	busy, err := l.enter(open, "busy", nil, uncounted)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxIdle {
		use, err := l.enter(open, fmt.Sprint("caller", i), nil, uncounted)
		if err != nil {
			t.Fatal(err)
		}
		l.leave(use)
	}
	if n := len(l.usage); n > maxIdle {
		t.Errorf("%d callers are remembered, want %d at most", n, maxIdle)
	}
	if l.usage["busy"] != busy || busy.inFlight != 1 {
		t.Errorf("the caller with a call in flight is forgotten")
	}
	again, err := l.enter(open, "busy", nil, uncounted)
	if err != nil || again != busy || busy.inFlight != 2 {
		t.Errorf("its next call: %+v, %v", again, err)
	}
}
