package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// thriftEvery is how often Orla looks whether it is quiet.
	thriftEvery = 5 * time.Second
	// quietBytes and quietGoroutines are what happens in that time at most where
	// nothing does.
	quietBytes      = 1 << 20
	quietGoroutines = 16
	// stirredBytes and stirredGoroutines are what must have happened for a
	// collection to be worth its time.
	stirredBytes      = 4 << 20
	stirredGoroutines = 64
	// busyCollections in that time are so many that Orla is better off with more
	// garbage between them: up to twice roomSize more.
	busyCollections = 100
	roomSize        = 12 << 20
)

// thrift has Orla take memory while it is busy, and give it back when that is over.
//
// The runtime collects garbage when there is as much of it as of what is in use,
// which is so little with Orla that, under load, it does that a hundred times a
// second, at up to half of a call's cost. And what the busiest moment took it
// keeps for as long as nobody asks for anything: clients have left, or large
// answers were given. So it is with what the start took.
type thrift struct{}

// String names the service in logs.
func (thrift) String() string { return "memory" }

// Serve gives memory back until ctx ends.
func (thrift) Serve(ctx context.Context) error {
	tick := time.NewTicker(thriftEvery)
	defer tick.Stop()
	last := activityNow()
	var given *activity // when memory was given back; nil before: the start takes more than what follows needs
	var room []byte     // is never written to, and so no more than a number to the runtime
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := activityNow()
		switch {
		case now.busySince(last):
			if room == nil {
				room = make([]byte, roomSize)
			}
		case now.quietSince(last) && (given == nil || now.stirredSince(*given)):
			room = nil
			runtime.GC() // what pools keep outlives one collection
			debug.FreeOSMemory()
			forgetProgram()
			now = activityNow()
			given = &now
		}
		runtime.KeepAlive(room)
		last = now
	}
}

// activity is what shows whether something happens: what was allocated so far, how
// many goroutines there are, and how often garbage was collected so far.
type activity struct{ allocated, goroutines, collections uint64 }

func activityNow() activity {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/sched/goroutines:goroutines"}, {Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(samples)
	return activity{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}

// busySince reports whether garbage was collected again and again since an earlier moment.
func (a activity) busySince(earlier activity) bool {
	return a.collections-earlier.collections >= busyCollections
}

// quietSince reports whether nothing has happened since an earlier moment.
func (a activity) quietSince(earlier activity) bool {
	return a.allocated-earlier.allocated <= quietBytes && distance(a.goroutines, earlier.goroutines) <= quietGoroutines
}

// stirredSince reports whether much has happened since an earlier moment.
func (a activity) stirredSince(earlier activity) bool {
	return a.allocated-earlier.allocated >= stirredBytes || distance(a.goroutines, earlier.goroutines) >= stirredGoroutines
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }
