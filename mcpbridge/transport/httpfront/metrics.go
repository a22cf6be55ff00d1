package httpfront

import (
	"bytes"
	"cmp"
	"net/http"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
)

const (
	// maxScrapes bounds the requests for metrics at one time, which last until their clients have read the answer.
	maxScrapes = 8
	// scrapePatience is how long one waits until it is made.
	scrapePatience = 10 * time.Second
)

// scrapes passes on requests for metrics within the share of their caller. Each reads all series, which takes milliseconds for a
// hundred bytes: callers take turns, and half of the time one of them is made (SPEC N2).
func (h *Front) scrapes(metrics http.Handler) http.Handler {
	places, making := turns.NewShares(maxScrapes), turns.NewDoor(1, maxScrapes, scrapePatience)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.bridge.SeesAll(cmp.Or(subject(r), anonymous), groupsOf(r)) {
			refuse(w, http.StatusForbidden, "metrics name all tools, and are for callers without roles, toolsets and rules of their own")
			return
		}
		owner, made := client.OwnerOf(subject(r), "", hostOf(r)), &page{header: w.Header(), status: http.StatusOK}
		if places.Try(owner, 1) {
			defer places.Give(owner, 1)
			if making.Do(r.Context(), cmp.Or(owner.Caller, owner.Session), func() { metrics.ServeHTTP(made, r) }) {
				w.WriteHeader(made.status)
				_, _ = w.Write(made.Bytes()) // an error means that the client has left
				return
			}
		}
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "too many requests for metrics at one time; try again in a moment")
	})
}

// page is an answer in memory: nobody waits for its client while it is made.
type page struct {
	bytes.Buffer

	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(status int) { p.status = status }
