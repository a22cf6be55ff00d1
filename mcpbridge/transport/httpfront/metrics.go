package httpfront

import (
	"cmp"
	"net/http"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
)

// maxScrapes bounds the requests for metrics at one time: each reads all series, and lasts until
// its client has read the answer.
const maxScrapes = 8

// scrapes passes on requests for metrics within the share of their caller (SPEC N2).
func (h *Front) scrapes(metrics http.Handler) http.Handler {
	places := turns.NewShares(maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.bridge.SeesAll(cmp.Or(subject(r), anonymous), groupsOf(r)) {
			refuse(w, http.StatusForbidden, "metrics name all tools, and are for callers without roles, toolsets and rules of their own")
			return
		}
		owner := client.OwnerOf(subject(r), "", hostOf(r))
		if !places.Try(owner, 1) {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "too many requests for metrics at one time; try again in a moment")
			return
		}
		defer places.Give(owner, 1)
		metrics.ServeHTTP(w, r)
	})
}
