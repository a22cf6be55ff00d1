package main

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

// What a busy moment took is given back soon after it, though nothing more is
// allocated that would have the garbage collected.
func TestG7MemoryIsGivenBack(t *testing.T) {
	const size = 64 << 20
	released := func() int64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- thrift{}.Serve(ctx) }()
		synctest.Wait()
		debug.FreeOSMemory()
		touch(size)
		low := released()
		time.Sleep(3 * thriftEvery)
		synctest.Wait()
		if got := released() - low; got < size*3/4 {
			t.Errorf("%d bytes were given back, want %d", got, size)
		}
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the service ended with %v", err)
		}
	})
}

// While much garbage is made, more of it gathers before it is collected.
func TestBusyIsCollectedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- thrift{}.Serve(ctx) }()
		synctest.Wait()
		inUse := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := inUse()
		began := activityNow().collections
		for activityNow().collections < began+busyCollections {
			waste(8 << 20)
		}
		time.Sleep(thriftEvery)
		synctest.Wait()
		if got := inUse() - before; got < roomSize/2 {
			t.Errorf("while it is busy the heap has %d bytes more, want about %d", got, roomSize)
		}
		time.Sleep(2 * thriftEvery)
		synctest.Wait()
		if got := int64(inUse()) - int64(before); got > roomSize/2 {
			t.Errorf("when it is quiet the heap has %d bytes more still", got)
		}
		cancel()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the service ended with %v", err)
		}
	})
}

// waste makes garbage.
//
//go:noinline
func waste(size int) { runtime.KeepAlive(make([]byte, size)) }

// touch uses memory, and lets go of it.
//
//go:noinline
func touch(size int) {
	busy := make([]byte, size)
	for i := range busy {
		busy[i] = 1
	}
}

func TestActivity(t *testing.T) {
	base := activity{allocated: 100 << 20, goroutines: 100}
	for _, test := range []struct {
		name           string
		bytes, more    int
		quiet, stirred bool
	}{
		{"nothing", 0, 0, true, false},
		{"a call", 100 << 10, 2, true, false},
		{"many calls", 50 << 20, 0, false, true},
		{"clients that leave", 200 << 10, -90, false, true},
		{"clients that come", 200 << 10, 90, false, true},
		{"a few calls over a long time", 5 << 20, 1, false, true},
	} {
		now := activity{base.allocated + uint64(test.bytes), uint64(int(base.goroutines) + test.more), 0}
		if now.quietSince(base) != test.quiet || now.stirredSince(base) != test.stirred {
			t.Errorf("%s: quiet %v, stirred %v", test.name, now.quietSince(base), now.stirredSince(base))
		}
	}
}
