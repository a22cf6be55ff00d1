package wiring

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// gcPercent is the value of GOGC. Orla uses only a few MiB, so that with the default of 100, garbage
	// collections take a fifth of the time of small calls.
	gcPercent = 400
	// leastPercent is its value while large answers are most of what is in use. They have no pointers, so that a
	// collection costs next to nothing for them, but would leave four times as much garbage.
	leastPercent = 50
	// bytesOfGarbage is how much garbage is left beside gcPercent of what a collection has to look through.
	bytesOfGarbage = 64 << 20
)

var gather sync.Once

// LetGarbageGather sets gcPercent, and less while it would be much garbage (SPEC S2), unless the user has set GOGC.
func LetGarbageGather() {
	if os.Getenv("GOGC") != "" {
		return
	}
	gather.Do(func() {
		debug.SetGCPercent(gcPercent)
		adjust(gcPercent)
	})
}

// adjust sets the percentage again after each collection. It is the given one before the next one.
func adjust(percent int) {
	seen := new([16]byte) // the next collection takes it away
	runtime.AddCleanup(seen, func(before int) {
		read := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
		metrics.Read(read)
		next := percentOf(read[0].Value.Uint64(), read[1].Value.Uint64())
		const much = 10 // percent of the percentage: to set it stops the program for a moment
		if next == before || next != gcPercent && 100*max(next-before, before-next) < much*before {
			next = before
		} else {
			debug.SetGCPercent(next)
		}
		adjust(next)
	}, percent)
}

// percentOf returns the percentage for so many bytes in use, of which a collection looks through some.
func percentOf(used, looked uint64) int {
	const hundred = 100
	allowed := looked*gcPercent/hundred + bytesOfGarbage
	return int(min(max(allowed*hundred/max(used, 1), leastPercent), gcPercent))
}
