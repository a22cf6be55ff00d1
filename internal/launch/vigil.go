package launch

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watch is how long the vigil stays in one system call: shorter than the 10 ms
	// after which the runtime takes a processor from one.
	watch = 8 * time.Millisecond
	// linger is how far calls may be apart that follow one another, and how long
	// the vigil rests after calls beside each other.
	linger = 250 * time.Millisecond
	// longest is how long it goes on without a rest: meanwhile the runtime does not
	// follow changes of the processors that it may use.
	longest = time.Minute
)

// vigil keeps the runtime's monitor calm while calls of Run follow one another,
// one at a time (docs/decisions/0029). The monitor rests when all processors do,
// and looks after them every 20 µs from the next system call on: for as long as a
// short process lives, and on the processor that this could use. It slows down,
// and stays slow, as long as one of them does not rest. So one does not: an extra
// one, so that nobody lacks it.
//
// A nil vigil keeps nothing.
type vigil struct {
	running atomic.Int32 // calls under way
	alone   atomic.Int64 // calls that began when no other was under way
	beside  atomic.Int64 // calls that began beside others
	last    atomic.Int64 // when one began alone, by the monotonic clock
	began   time.Time
	idle    atomic.Bool // whether it waits for wake
	wake    chan struct{}
	done    chan struct{}
	over    sync.WaitGroup
}

// newVigil returns nil where there is but one processor: calls that hold one
// while the vigil does would leave none.
func newVigil() *vigil {
	if processors == 1 {
		return nil
	}
	v := &vigil{began: time.Now(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	v.last.Store(-int64(linger))
	v.over.Go(v.serve)
	return v
}

// begin says that a call begins; end says that it has ended.
func (v *vigil) begin() {
	if v == nil {
		return
	}
	if v.running.Add(1) > 1 {
		v.beside.Add(1)
		return
	}
	v.alone.Add(1)
	now := int64(time.Since(v.began))
	if now-v.last.Swap(now) < int64(linger) && v.idle.CompareAndSwap(true, false) {
		v.wake <- struct{}{} // has room: only who ends idle sends
	}
}

func (v *vigil) end() {
	if v != nil {
		v.running.Add(-1)
	}
}

func (v *vigil) close() {
	if v != nil {
		close(v.done)
		v.over.Wait()
	}
}

func (v *vigil) serve() {
	for {
		v.idle.Store(true)
		select {
		case <-v.wake:
		case <-v.done:
			return
		}
		v.keep()
		select {
		case <-time.After(linger):
		case <-v.done:
			return
		}
	}
}

// keep holds a processor until calls come no more, or beside each other.
func (v *vigil) keep() {
	if runtime.GOMAXPROCS(0) == 1 {
		return // there were more at the start
	}
	addProcessor()
	defer removeProcessor()
	alone, beside := v.alone.Load(), v.beside.Load()
	rest := time.Now().Add(longest)
	for quiet := time.Duration(0); quiet < linger && v.beside.Load() == beside && time.Now().Before(rest) && !isClosed(v.done); quiet += watch {
		if now := v.alone.Load(); now != alone {
			alone, quiet = now, 0
		}
		_, _ = unix.Poll(nil, int(watch.Milliseconds())) // no descriptors: it waits
		runtime.Gosched()                                // the monitor takes a processor from who never does
	}
}

// processors is how many the runtime began with.
var processors = runtime.GOMAXPROCS(0)

func addProcessor() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) }

func removeProcessor() {
	if n, err := strconv.ParseInt(os.Getenv("GOMAXPROCS"), 10, 32); err == nil && n > 0 { // as the runtime reads it
		runtime.GOMAXPROCS(processors)
		return
	}
	runtime.SetDefaultGOMAXPROCS() // the runtime follows changes of a cgroup's limit again
}
