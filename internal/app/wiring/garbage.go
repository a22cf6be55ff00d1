package wiring

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
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
	// mostGarbage is how much garbage is left at most, unless leastPercent leaves more: a large heap takes long to look through,
	// but four times of it may not fit into the machine.
	mostGarbage = 640 << 20
	// calm is how long there was no collection when memory is given back to the system.
	calm = 5 * time.Second
	// worthGiving is how many bytes are given back at least.
	worthGiving = 4 << 20
	// usedBytes is about what a request, or a connection that has ended, leaves that a collection would find.
	usedBytes = 8 << 10
)

var (
	gather  sync.Once
	resting atomic.Pointer[time.Timer] // calls giveBack; nil if Orla leaves memory alone
	used    atomic.Int64               // calls of Used since giveBack
)

// LetGarbageGather sets gcPercent, and less while it would be much garbage (SPEC S2), unless the user has set GOGC. Garbage that
// gathered while there was much to do is given back when there is little (SPEC L4).
func LetGarbageGather() {
	if os.Getenv("GOGC") != "" {
		return
	}
	gather.Do(func() {
		debug.SetGCPercent(gcPercent)
		timer := time.AfterFunc(calm, giveBack)
		resting.Store(timer)
		adjust(gcPercent, func() { timer.Reset(calm) })
	})
}

// Used notes that a request or a connection has ended, perhaps with what was kept for it. Many of them may be worth a collection
// that nothing else asks for: clients that leave need no memory. Any goroutine may call it.
func Used() {
	if used.Add(1) != worthGiving/usedBytes {
		return
	}
	if timer := resting.Load(); timer != nil {
		timer.Reset(calm)
	}
}

// giveBack gives memory back to the system if it is worth it. That makes two collections: what is in a sync.Pool, such as the
// buffers of connections that have ended, is garbage only for the second.
func giveBack() {
	read := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(read)
	live, objects, free := read[0].Value.Uint64(), read[1].Value.Uint64(), read[2].Value.Uint64()
	unknown := uint64(used.Swap(0)) * usedBytes
	if garbage := objects - min(live, objects); garbage+free+unknown >= worthGiving {
		runtime.GC()
		debug.FreeOSMemory()
	}
}

// adjust sets the percentage again after each collection, and then calls collected. The percentage is the given one before the
// next collection.
func adjust(percent int, collected func()) {
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
		adjust(next, collected)
		collected()
	}, percent)
}

// percentOf returns the percentage for so many bytes in use, of which a collection looks through some.
func percentOf(used, looked uint64) int {
	const hundred = 100
	allowed := min(looked*gcPercent/hundred+bytesOfGarbage, mostGarbage)
	return int(min(max(allowed*hundred/max(used, 1), leastPercent), gcPercent))
}
