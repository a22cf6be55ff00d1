package remote_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// A server that asks and asks, and takes its time with the answers, is answered
// by a few requests at once, keeps no call waiting, and is told so in the log.
func TestServerThatAsksFasterThanItListens(t *testing.T) {
	var answering, most atomic.Int64
	release := make(chan struct{})
	s := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 4000 {
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"ask-%d\",\"method\":\"ping\"}\n\n", i)
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		case r.Method == http.MethodPost && m.Method == "":
			most.Store(max(most.Load(), answering.Add(1)))
			defer answering.Add(-1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusAccepted)
			return true
		}
		return false
	})
	l := connect(t, s.URL)
	testkit.Eventually(t, "messages are dropped", func() bool { return l.log.Has("dropping an answer") })
	if got := l.text("far--t", `{}`); got != "called" {
		t.Errorf("a call meanwhile: %s", got)
	}
	if n := most.Load(); n > 16 {
		t.Errorf("%d answers were on their way at once", n)
	}
	close(release)
	l.stop()
}

// A far server that pings as it answers initialize is asked nothing before it has
// heard that the handshake is over.
func TestInitializedComesFirst(t *testing.T) {
	var mu sync.Mutex
	for range 20 {
		greeted := false
		s := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
			mu.Lock()
			defer mu.Unlock()
			switch m.Method {
			case "initialize":
				send := sse(w)
				send("data: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}")
				send("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{\"listChanged\":true}},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}", m.ID)
				return true
			case "notifications/initialized":
				greeted = true
			case "tools/list":
				if !greeted {
					t.Error("the list was asked for before the handshake was over")
				}
			}
			return false
		})
		l := connect(t, s.URL)
		l.becomes("READY")
		testkit.Eventually(t, "it was asked", func() bool { return l.log.Has("msg=offers") })
		l.stop()
	}
}
