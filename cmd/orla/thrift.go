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
	thriftEvery = 15 * time.Second
	// quietBytes and quietGoroutines are what happens in that time at most where
	// nothing does.
	quietBytes      = 1 << 20
	quietGoroutines = 16
	// stirredBytes and stirredGoroutines are what must have happened for a
	// collection to be worth its time.
	stirredBytes      = 4 << 20
	stirredGoroutines = 64
)

// thrift gives memory back when something has happened and is over: clients have
// left, or large answers were given. The runtime collects garbage as more is
// allocated, and so keeps what the busiest moment took for as long as nobody asks
// for anything.
type thrift struct{}

// String names the service in logs.
func (thrift) String() string { return "memory" }

// Serve gives memory back until ctx ends.
func (thrift) Serve(ctx context.Context) error {
	tick := time.NewTicker(thriftEvery)
	defer tick.Stop()
	last := activityNow()
	given := last // what the start took, settleDown sees to
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now := activityNow()
		if now.quietSince(last) && now.stirredSince(given) {
			runtime.GC() // what pools keep outlives one collection
			debug.FreeOSMemory()
			now = activityNow()
			given = now
		}
		last = now
	}
}

// activity is what shows whether something happens: what was allocated so far, and
// how many goroutines there are.
type activity struct{ allocated, goroutines uint64 }

func activityNow() activity {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(samples)
	return activity{samples[0].Value.Uint64(), samples[1].Value.Uint64()}
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
