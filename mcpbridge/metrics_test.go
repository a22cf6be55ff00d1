package mcpbridge_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC N2: a caller that reads metrics slowly, however often, leaves places to another one.
func TestN2SlowScrapesLeavePlacesToOthers(t *testing.T) {
	var reading, refused atomic.Int64
	release := make(chan struct{})
	const more = 32 << 20 // than a connection keeps
	metrics := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "slow" {
			_, _ = w.Write(make([]byte, more))
			reading.Add(1)
		}
	})
	w := newWorld(t, func(o *mcpbridge.Options) { o.Metrics = metrics })
	f := w.front(t, httpfront.Settings{Verify: tokens})
	const flood = 20
	var scrapes sync.WaitGroup
	defer scrapes.Wait()
	defer close(release)
	for range flood {
		scrapes.Go(func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/metrics?slow", nil)
			req.Header.Set("Authorization", "Bearer ann")
			res, err := f.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			if res.StatusCode == http.StatusServiceUnavailable {
				refused.Add(1)
			}
			<-release
			_ = res.Body.Close()
		})
	}
	eventually(t, "each scrape is read or refused", func() bool { return reading.Load()+refused.Load() == flood })
	if n := reading.Load(); n < 1 || n > 4 {
		t.Errorf("%d scrapes of one caller are read at one time, want 4 at most", n)
	}
	if r := f.send(t, http.MethodGet, "/metrics", "", bearer("bob")...); r.status != http.StatusOK {
		t.Errorf("another caller's scrape is answered with %d %s", r.status, r.raw)
	}
}
