package httpfront

import (
	"net/http"
	"runtime"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// strangers is the caller of all requests without a caller. No token has this name.
const strangers = "\x00"

// lightEach is how many light requests are served in a moment, for each processor. One takes some
// tens of microseconds, mostly in net/http.
const lightEach = 8

// newLight returns the queue of the light requests, which are refused or answered at once and take
// no place of Front.Working. The queues are separate so that a health check does not count as
// another caller that is active.
func newLight() *turns.Queue { return turns.NewQueue(lightEach*runtime.NumCPU(), 0) }

// waitTurn waits until it is a light request's turn, or its client has left. Each light request
// calls it once, so that connections are served in turn, one request each. The place is kept for a
// moment: the work takes so little of it that places given back at once would almost always be
// free. The processors would then never be idle, and Go's scheduler looks at the network late.
func (h *Front) waitTurn(r *http.Request, as turns.Owner) {
	if h.light.Take(r.Context(), as) == nil {
		time.AfterFunc(moment, func() { h.light.Give(as) })
	}
}

// atOnce is the time within which a POST counts as answered at once. An answer of a capsule takes longer.
const atOnce = moment / 40

// worked gives back a POST's place of Front.Working. While other callers are active, a POST that was
// answered at once is a light request as well, and one with a large answer counts for as long as that takes
// to make and write: its client may have hung up at its first bytes. Who has begun a session is that session from now on, and
// does not count as another caller beside it.
func (h *Front) worked(r *http.Request, as turns.Owner, place *turns.Brief, out *response) {
	if out.opened {
		place.GiveUnseen()
		return
	}
	if left := out.worksFor(); left > 0 {
		time.AfterFunc(left, place.Give)
		return
	}
	if place.GiveWithin(atOnce) {
		h.waitTurn(r, as)
	}
}

// strangerOf is the owner of a request without a caller: its address, as a session of strangers.
func strangerOf(r *http.Request) turns.Owner {
	return turns.Owner{Caller: strangers, Session: hostOf(r)}
}
