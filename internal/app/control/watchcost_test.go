package control_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/app/control"
)

// crowd is a backend with many tools, which never change.
type crowd struct {
	*backend
	tools []control.ToolStatus
	looks atomic.Int64
}

func newCrowd(n int) *crowd {
	c := &crowd{backend: newBackend()}
	for i := range n {
		c.tools = append(c.tools, control.ToolStatus{Name: fmt.Sprintf("tool-%05d", i), Kind: "simple", Source: fmt.Sprintf("/srv/tools/tool-%05d", i)})
	}
	return c
}

// Status implements control.Backend: as a running Orla it makes the list again.
func (c *crowd) Status() control.Status {
	c.looks.Add(1)
	return control.Status{Version: "v1", Tools: slices.Clone(c.tools)}
}

// sink is a client that reads all and keeps nothing. It tells when the first event is complete.
type sink struct {
	header http.Header
	whole  chan struct{}
	bytes  int
	once   sync.Once
}

// Header implements http.ResponseWriter.
func (s *sink) Header() http.Header { return s.header }

// WriteHeader implements http.ResponseWriter.
func (s *sink) WriteHeader(int) {}

// Flush implements http.Flusher.
func (s *sink) Flush() {}

// Write implements http.ResponseWriter.
func (s *sink) Write(p []byte) (int, error) {
	if s.bytes += len(p); bytes.HasSuffix(p, []byte("}\n\n")) {
		s.once.Do(func() { close(s.whole) })
	}
	return len(p), nil
}

// S1, N2: streams that are open at the same time share one look at all tools. Sixteen streams cost little more memory than one,
// while they begin and as long as they are open.
func TestS1StreamsShareALookAtAllTools(t *testing.T) {
	const tools = 10_000
	c := newCrowd(tools)
	page := control.New(control.Options{Backend: c, MaxRequest: 1 << 10, Log: slog.New(slog.DiscardHandler)}).PageAPI()
	inUse := func() (allocated, live uint64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc, m.HeapAlloc
	}
	costs := func(streams int) (allocated, live uint64, looks int64) {
		ctx, cancel := context.WithCancel(t.Context())
		var open sync.WaitGroup
		defer open.Wait()
		defer cancel()
		total, held := inUse()
		before := c.looks.Load()
		for range streams {
			s := &sink{header: http.Header{}, whole: make(chan struct{})}
			open.Go(func() {
				page.ServeHTTP(s, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/watch", nil))
			})
			defer func() {
				if s.bytes < 60*tools {
					t.Errorf("a stream has %d bytes of %d tools", s.bytes, tools)
				}
			}()
			defer open.Wait()
			defer cancel()
			<-s.whole
		}
		nowTotal, nowHeld := inUse()
		return nowTotal - total, max(nowHeld, held) - held, c.looks.Load() - before
	}
	costs(1)
	oneAll, oneLive, _ := costs(1)
	allAll, allLive, looks := costs(16)
	t.Logf("one stream allocates %d KiB and keeps %d KiB; sixteen %d KiB and %d KiB, with %d looks", oneAll>>10, oneLive>>10, allAll>>10, allLive>>10, looks)
	if allAll > 5*oneAll {
		t.Errorf("sixteen streams allocate %d KiB, one %d KiB", allAll>>10, oneAll>>10)
	}
	if allLive > 3*oneLive+4<<20 {
		t.Errorf("sixteen streams keep %d KiB, one %d KiB", allLive>>10, oneLive>>10)
	}
}
