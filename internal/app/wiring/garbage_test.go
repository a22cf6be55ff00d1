package wiring

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		{"long lists of many capsules", 640 * mebi, 600 * mebi, 100},
		{"still more of them", 2000 * mebi, 1900 * mebi, 50},
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
	var collected atomic.Int64
	adjust(gcPercent, func() { collected.Add(1) })
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
	if collected.Load() == 0 {
		t.Error("the calm does not begin again after a collection")
	}
}

// SPEC L4: what gathered is given back when it is much, and only then.
func TestL4GarbageIsGivenBack(t *testing.T) {
	const mebi = 1 << 20
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	debug.FreeOSMemory()
	read := func() (released, collections uint64) {
		of := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/forced:gc-cycles"}}
		metrics.Read(of)
		return of[0].Value.Uint64(), of[1].Value.Uint64()
	}
	func() {
		var garbage [][]byte
		for range 64 {
			garbage = append(garbage, make([]byte, mebi))
		}
		runtime.KeepAlive(garbage)
	}()
	had, _ := read()
	giveBack()
	has, collections := read()
	if has < had+48*mebi {
		t.Errorf("%d MiB of 64 are given back", (has-had)/mebi)
	}
	giveBack()
	if _, now := read(); now != collections {
		t.Error("it collects again for nothing")
	}
}

// SPEC L4, G7: buffers that connections have left in a pool are given back too, which keeps them for one collection.
func TestG7WhatPoolsKeepIsGivenBack(t *testing.T) {
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	const many, size = 1000, 4 << 10
	var pool sync.Pool
	var gone atomic.Int64
	func() {
		for range many {
			buffer := make([]byte, size)
			runtime.AddCleanup(&buffer[0], func(int) { gone.Add(1) }, 0)
			pool.Put(&buffer)
		}
	}()
	used.Store(worthGiving / usedBytes)
	giveBack()
	testkit.Eventually(t, "nine of ten buffers are gone", func() bool { return gone.Load() > many*9/10 })
	runtime.KeepAlive(&pool)
}

// SPEC L4: what clients that leave had is given back, though nothing collects garbage any more.
func TestL4ClientsThatLeaveGiveMemoryBack(t *testing.T) {
	const mebi, many = 1 << 20, worthGiving / usedBytes
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	released := func() uint64 {
		of := []metrics.Sample{{Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(of)
		return of[0].Value.Uint64()
	}
	func() {
		kept := make([][]byte, 64)
		for i := range kept {
			kept[i] = make([]byte, mebi)
		}
		debug.FreeOSMemory()
		runtime.KeepAlive(kept)
	}()
	had := released()
	used.Store(many / 2)
	giveBack()
	if has := released(); has != had {
		t.Errorf("%d KiB are given back of what few had", (has-had)>>10)
	}
	used.Store(many)
	giveBack()
	if has := released(); has < had+48*mebi {
		t.Errorf("%d MiB of 64 are given back", (has-had)/mebi)
	}
	synctest.Test(t, func(t *testing.T) {
		var given atomic.Int64
		resting.Store(time.AfterFunc(time.Hour, func() { given.Add(1) }))
		defer resting.Store(nil)
		defer used.Store(0)
		for range many - 1 {
			Used()
		}
		time.Sleep(2 * calm)
		if given.Load() != 0 {
			t.Error("few requests are worth a collection")
		}
		Used()
		time.Sleep(calm)
		synctest.Wait()
		if given.Load() != 1 {
			t.Error("many requests are not")
		}
	})
}
