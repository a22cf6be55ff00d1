package remote_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
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
	eventually(t, "messages are dropped", func() bool { return l.log.has("an answer is dropped") })
	if got := l.text("far--t", `{}`); got != "called" {
		t.Errorf("a call meanwhile: %s", got)
	}
	if n := most.Load(); n > 16 {
		t.Errorf("%d answers were on their way at once", n)
	}
	close(release)
	l.stop()
}
