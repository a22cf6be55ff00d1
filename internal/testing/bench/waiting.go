package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// maxWaiting is the memory that one waiting call may hold.
const maxWaiting = 64 << 10

// used is what this process holds at one moment.
type used struct {
	heap, stacks, rss int64
	goroutines        int
}

func usedNow() (used, error) {
	debug.FreeOSMemory() // collects garbage first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	held, err := memoryOf(os.Getpid())
	return used{int64(m.HeapAlloc), int64(m.StackInuse), held.rss, runtime.NumGoroutine()}, err
}

// measureWaiting tells what calls hold that wait for a webhook's callback.
func (b *bench) measureWaiting(ctx context.Context, own *inProcess) (table, error) {
	t := table{
		title:  "Calls that wait for a callback (SPEC-TOOLS 3.4)",
		header: []string{"waiting", "goroutines", "heap", "stacks", "RSS", "heap and stacks each", "RSS each", "target each", "verdict"},
		note:   "What this process holds more than before, after garbage is collected; connections to the service included, which are polled on meanwhile.",
	}
	before, err := usedNow()
	if err != nil {
		return t, err
	}
	waiting, cancel := context.WithCancelCause(ctx)
	over := errors.New("enough")
	var calls sync.WaitGroup
	for range b.scale.waiting {
		calls.Go(func() { _ = own.call(waiting, "pending", argument) }) // it waits until it is cancelled
	}
	err = rest(ctx, b.scale.waits)
	after, errAfter := usedNow()
	cancel(over)
	calls.Wait()
	if err := errors.Join(err, errAfter); err != nil {
		return t, err
	}
	n := int64(b.scale.waiting)
	heap, stacks, rss := after.heap-before.heap, after.stacks-before.stacks, after.rss-before.rss
	each := (heap + stacks) / n
	t.add(fmt.Sprint(n), fmt.Sprint(after.goroutines-before.goroutines), mebibytes(heap), mebibytes(stacks), mebibytes(rss),
		fmt.Sprintf("%.1f KiB", float64(each)/1024), fmt.Sprintf("%.1f KiB", float64(rss/n)/1024), kibibytes(maxWaiting),
		verdict(check{"memory", float64(each), maxWaiting}))
	return t, nil
}
