package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// SPEC S2, N2: of an answer that only promises one, and of one that says that there is
// none yet, no more is read than the few bytes of a call that nobody counts.
func TestS2NoMoreOfAPromiseIsReadThanNobodyCounts(t *testing.T) {
	for _, later := range []int{http.StatusAccepted, http.StatusNotFound, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(later), func(t *testing.T) {
			var asked atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				status := later
				switch asked.Add(1) {
				case 1:
					status = http.StatusAccepted
				case 2:
				default:
					_, _ = io.WriteString(w, success)
					return
				}
				w.Header().Set("Content-Length", "1048576")
				w.WriteHeader(status)
				_, _ = w.Write(bytes.Repeat([]byte("x"), 4*turns.Little))
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			t.Cleanup(s.Close)
			ctx, cancel := context.WithTimeout(callid.With(t.Context(), id), 20*time.Second)
			defer cancel()
			a, err := newSetup(t).build(t, described(s.URL)).Call(ctx, peer.Call{})
			if got := text(t, a, err); got != `{"n":1.0}` || ctx.Err() != nil {
				t.Errorf("text = %s, and the context: %v", got, ctx.Err())
			}
		})
	}
}
