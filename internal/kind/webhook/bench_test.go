package webhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// BenchmarkAThousandWaits prints what a call takes that waits for its answer: of
// memory, the service that it waits for leaving aside.
func BenchmarkAThousandWaits(b *testing.B) {
	const waits = 1000
	set := newSetup(b)
	var posted atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		posted.Add(1)
	}))
	b.Cleanup(s.Close)
	tool := set.build(b, described(s.URL))
	tool.Hurry(time.Hour, time.Hour, time.Hour)
	for b.Loop() {
		before := inUse()
		ctx, end := context.WithCancel(b.Context())
		var calls sync.WaitGroup
		for range waits {
			calls.Go(func() { _, _ = tool.Call(ctx, peer.Call{Args: []byte(`{"n":1}`)}) })
		}
		for posted.Load() < waits {
			<-time.After(time.Millisecond)
		}
		posted.Store(0)
		set.client.Close() // what connections take is not the waits'
		b.ReportMetric(float64(inUse()-before)/waits, "B/wait")
		if n := set.callbacks.Waiting(); n != waits {
			b.Fatalf("%d calls wait; want %d", n, waits)
		}
		end()
		calls.Wait()
	}
}

// inUse is the memory of the heap and of stacks that is in use.
func inUse() int64 {
	var m runtime.MemStats
	for range 3 { // stacks shrink, and pools empty, in more than one
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
