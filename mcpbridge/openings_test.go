package mcpbridge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// deaf is a client that takes no byte of its answer until it is over.
type deaf struct {
	http.ResponseWriter

	stuck chan<- struct{}
	over  <-chan struct{}
}

func (d deaf) Write(p []byte) (int, error) {
	select {
	case d.stuck <- struct{}{}:
	default: // it is known
	}
	<-d.over
	return d.ResponseWriter.Write(p)
}

// Who does not read the answer keeps no place from others.
func TestG7WhoDoesNotReadHoldsNoOpening(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	over := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(over)
	for range 4 {
		stuck := make(chan struct{}, 1)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(initialize("2025-11-25")))
		r.Host = "127.0.0.1"
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		wg.Go(func() { f.ServeHTTP(deaf{httptest.NewRecorder(), stuck, over}, r) })
		select {
		case <-stuck:
		case <-time.After(patience):
			t.Fatal("it does not come to its answer")
		}
	}
	if r := f.post(t, initialize("2025-11-25")); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.raw)
	}
}
