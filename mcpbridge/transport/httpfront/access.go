package httpfront

import (
	"context"
	"errors"
	"net/http"

	"github.com/orla-project/orla/mcpbridge/client"
)

// errRemoved is the cause with which the requests of a caller end that may not call
// any more.
var errRemoved = errors.New("the caller's token was removed")

// access is the time for which a caller may call: from the Configure that brought
// its token to the one that takes it away (SPEC N2).
type access struct {
	key string // of Settings.Callers
	ctx context.Context
	end context.CancelCauseFunc
}

// accessOf returns the access that callers have with new settings: the same as before,
// if they had it with the same key.
func accessOf(callers map[string]string, before map[string]*access) map[string]*access {
	now := map[string]*access{}
	for name, key := range callers {
		if a := before[name]; a != nil && a.key == key {
			now[name] = a
			continue
		}
		now[name] = newAccess(key)
	}
	return now
}

// newAccess begins an access, which lasts beyond any request.
func newAccess(key string) *access {
	ctx, end := context.WithCancelCause(context.Background())
	return &access{key: key, ctx: ctx, end: end}
}

// during returns a request that ends when its caller's access does. The function
// must be called at the end of the request.
func (a *access) during(r *http.Request) (*http.Request, func()) {
	if a == nil {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	forget := context.AfterFunc(a.ctx, func() { cancel(errRemoved) }) //nolint:contextcheck // it ends with either
	return r.WithContext(ctx), func() {
		forget()
		cancel(nil)
	}
}

// removed reports whether the access of a request's caller has ended meanwhile.
func removed(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errRemoved) }

// endSessions ends sessions, and what they do, as if it were cancelled.
func (h *Front) endSessions(these []*client.Session) {
	for _, s := range these {
		h.bridge.EndSession(s)
	}
}

// endCallers ends what callers have whose access is over: their requests and streams,
// sessions, calls in flight and kept answers. gone may have "", for all that
// came without authentication.
func (h *Front) endCallers(gone map[string]*access) {
	if len(gone) == 0 {
		return
	}
	for _, a := range gone {
		a.end(errRemoved)
	}
	is := func(caller string) bool { return gone[caller] != nil }
	h.endSessions(h.sessions.remove(func(u *usage) bool { return is(u.user) }))
	h.sse.endOf(is)
	h.bridge.EndCallers(is)
}
