package client

import (
	"math"
	"runtime"
	"testing"
)

// SPEC S2: a session that does nothing is small. Beyond this, it has its id, what its client has declared, and its places in
// lists of sessions.
func TestS2AnIdleSessionIsSmall(t *testing.T) {
	const n, most = 1000, 500
	kept := make([]*Session, n)
	each := int64(math.MaxInt64) // the least of some rounds: other goroutines take memory as well
	for range 5 {
		clear(kept)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i] = New("x")
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each = min(each, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/n)
	}
	t.Logf("a session takes %d bytes", each)
	if each > most {
		t.Errorf("a session takes %d bytes, more than %d", each, most)
	}
	runtime.KeepAlive(kept)
}
