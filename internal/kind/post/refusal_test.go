package post_test

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// stall answers a status with a body that is not sent to its end, of which more
// is sent than nobody counts.
func stall(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "1048576")
		w.WriteHeader(status)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 4*turns.Little))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// SPEC S2, N2: of an answer that is not a result, no more is read than the few bytes
// of a call that nobody counts: a service that goes on sending is not listened to.
func TestS2NoMoreOfARefusalIsReadThanNobodyCounts(t *testing.T) {
	for _, kind := range []manifest.Kind{manifest.HTTP, manifest.External} {
		for _, status := range []int{http.StatusInternalServerError, http.StatusNotFound, http.StatusUnauthorized} {
			s := serve(t, stall(status))
			ctx, cancel := context.WithTimeout(callid.With(t.Context(), id), 20*time.Second)
			_, err := build(t, described(kind, s.URL)).Call(ctx, peer.Call{Tool: "web_search", Args: []byte("{}")})
			if f := fault.From(err); f == nil || f.Code == fault.Timeout || ctx.Err() != nil {
				t.Errorf("%s, %d: %v, and the context: %v", kind, status, err, ctx.Err())
			}
			cancel()
		}
	}
}
