package httpfront

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
)

// errRemoved is the cause with which the requests of a caller end whose token was removed.
var errRemoved = errors.New("the caller's token was removed")

// IssuedPrefix begins the names of the callers that an authorization server has given tokens to. The
// rest is the subject. So a subject cannot have the name of a static token.
const IssuedPrefix = "oauth:"

// accessKey returns under which name the access of a caller is.
func accessKey(caller string) string {
	if strings.HasPrefix(caller, IssuedPrefix) {
		return IssuedPrefix
	}
	return caller
}

// access is the time during which a caller may call: from the Configure that adds its token to
// the one that removes it (SPEC N2).
type access struct {
	key string // of Settings.Callers
	ctx context.Context
	end context.CancelCauseFunc
}

// accessOf returns the access of each caller in new settings. A caller whose key is unchanged
// keeps its access.
func accessOf(callers map[string]string, before map[string]*access) map[string]*access {
	now := map[string]*access{}
	for name, key := range callers {
		if now[name] = before[name]; now[name] == nil || now[name].key != key {
			now[name] = newAccess(key)
		}
	}
	return now
}

// newAccess begins an access.
func newAccess(key string) *access {
	ctx, end := context.WithCancelCause(context.Background())
	return &access{key: key, ctx: ctx, end: end}
}

// during returns a request whose context ends with the access. The function must be called at
// the end of the request.
func (a *access) during(r *http.Request) (*http.Request, func()) {
	if a == nil {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	forget := context.AfterFunc(a.ctx, func() { cancel(errRemoved) }) //nolint:contextcheck // it ends with either
	return r.WithContext(context.WithValue(ctx, duringKey{}, a)), func() {
		forget()
		cancel(nil)
	}
}

// duringKey is the key of a request's *access in its context.
type duringKey struct{}

// removed reports whether the access of a request's caller has ended. The request itself ends a moment later.
func removed(ctx context.Context) bool {
	a, _ := ctx.Value(duringKey{}).(*access)
	return a != nil && a.ctx.Err() != nil
}

// forget makes a session that has ended not come back.
func (h *Front) forget(id string) {
	h.sessions.kept.Ended(id)
	if h.sessions.elsewhere != nil {
		h.sessions.elsewhere.Ended(id)
	}
}

// endSessions ends sessions for good, and cancels their requests.
func (h *Front) endSessions(these []*client.Session) {
	for _, s := range these {
		h.forget(s.ID)
		h.bridge.EndSession(s)
	}
}

// endCallers ends the requests, streams, sessions, calls in flight and kept answers of callers
// whose access has ended. The caller "" in gone stands for everybody without authentication.
func (h *Front) endCallers(gone map[string]*access) {
	if len(gone) == 0 {
		return
	}
	for _, a := range gone {
		a.end(errRemoved)
	}
	is := func(caller string) bool { return gone[accessKey(caller)] != nil }
	h.endSessions(h.sessions.remove(func(u *usage) bool { return is(u.user) }))
	h.sessions.kept.Forget(func(r *sessionlog.Record) bool { return is(r.Caller) })
	h.sse.EndOf(is)
	h.bridge.EndCallers(is)
}
