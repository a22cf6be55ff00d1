package wiring

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC S2, L4: large answers in use leave little garbage, and everything else as much as is cheap.
func TestS2GarbageBesideLargeAnswers(t *testing.T) {
	const mebi = 1 << 20
	for _, c := range []struct {
		what         string
		used, looked uint64
		want         int
	}{
		{"nothing", 0, 0, 400},
		{"a small Orla", 8 * mebi, 5 * mebi, 400},
		{"10 000 tools", 150 * mebi, 140 * mebi, 400},
		{"a few answers", 20 * mebi, 5 * mebi, 400},
		{"many answers", 84 * mebi, 5 * mebi, 100},
		{"very many", 1000 * mebi, 5 * mebi, 50},
	} {
		if got := percentOf(c.used, c.looked); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	before := debug.SetGCPercent(gcPercent)
	defer debug.SetGCPercent(before)
	adjust(gcPercent)
	answers := make([][]byte, 16)
	for i := range answers {
		answers[i] = make([]byte, 8*mebi)
	}
	next := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NextGC / mebi
	}
	testkit.Eventually(t, "128 MiB of answers leave less than 128 MiB of garbage", func() bool { return next() < 256 })
	runtime.KeepAlive(answers)
	testkit.Eventually(t, "the least heap is that of gcPercent again", func() bool { return next() >= 4*gcPercent/100 })
}
