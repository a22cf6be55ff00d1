package httpfront

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// keepNew keeps a session that has begun.
func (h *Front) keepNew(u *usage) {
	if h.sessions.kept == nil {
		return
	}
	if says, ok := u.Declared(); ok {
		h.sessions.kept.Begun(u.ID, &sessionlog.Record{Caller: u.user, Access: h.accessDigest(u.user), Says: says.Params()})
	}
}

// keep keeps what an answered request has changed of its session.
func (h *Front) keep(s *client.Session, m *wire.Message) {
	var to sessionlog.Setter = h.sessions.kept
	if h.sessions.elsewhere != nil {
		to = h.sessions.elsewhere
	}
	uri, _ := wire.TextOf(m.Params.URI)
	switch m.Method {
	case wire.MethodSetLevel:
		to.SetLevel(s.ID, s.LoggedFrom())
	case wire.MethodSubscribe:
		to.Follow(s.ID, uri)
	case wire.MethodUnsubscribe:
		to.Unfollow(s.ID, uri)
	}
}

// leave ends a request of a session that enter began.
func (h *Front) leave(u *usage) {
	if h.sessions.leave(u) {
		h.sessions.kept.Used(u.ID)
	}
}

// accessDigest returns a digest of what a caller has access by, so that a session does not outlive its token.
func (h *Front) accessDigest(caller string) string {
	a := h.settings.Load().access[accessKey(caller)]
	if a == nil {
		return ""
	}
	return sessionlog.AccessDigest(a.key)
}

// earlier returns a session that the same caller began in another process by the same access; nil if there is none that
// waits to be resumed.
func (h *Front) earlier(id, caller string) *sessionlog.Record {
	var k *sessionlog.Record
	if h.sessions.elsewhere == nil {
		k = h.sessions.kept.Earlier(id)
	} else if h.sessions.find(id, caller) == nil { // else it goes on already
		k = h.sessions.elsewhere.Opened(id)
	}
	if k != nil && k.Caller == caller && k.Access == h.accessDigest(caller) {
		return k
	}
	return nil
}

// endEarlier ends the session that a request names, if it waits to be resumed: that needs no room. It reports whether it
// has.
func (h *Front) endEarlier(r *http.Request) bool {
	id := header(r, wire.SessionHeader)
	if h.earlier(id, subject(r)) == nil {
		return false
	}
	h.sessions.resuming.Lock()
	defer h.sessions.resuming.Unlock()
	if h.earlier(id, subject(r)) == nil {
		return false // it was resumed meanwhile
	}
	h.forget(id)
	return true
}

// resume goes on with a session that the same caller began in an earlier process (SPEC Q2). It returns nil if
// there is none. The noRoom says why it cannot go on now.
func (h *Front) resume(r *http.Request, id, caller string) (*usage, *noRoom) {
	if h.leaves() {
		return nil, stopping
	}
	if h.home(r) != "" {
		return nil, nil
	}
	k := h.earlier(id, caller)
	if k == nil {
		return h.sessions.find(id, caller), nil // another request may have been faster
	}
	if h.sessions.elsewhere != nil {
		// Before, so that nobody else waits for it. The session goes on also if the client has left meanwhile, and it asks nowhere again.
		h.sessions.elsewhere.Set(context.WithoutCancel(r.Context()), id, k)
	}
	h.sessions.resuming.Lock()
	defer h.sessions.resuming.Unlock()
	if h.earlier(id, caller) == nil {
		return h.sessions.find(id, caller), nil
	}
	says, ok := wire.ReadInitialize(k.Says)
	if !ok {
		return nil, nil
	}
	of := partyOf(r, says.Name)
	yielded, full := h.sessions.admit(h.settings.Load().MaxSessions, h.limitOf(r, of), of, caller != "")
	h.endSessions(yielded)
	if full != nil {
		return nil, full
	}
	s := client.New(id)
	u := h.sessions.usage(s, caller, of)
	defer h.sessions.notOpened(u)
	by := originOf(r, caller, hostOf(r), client.StreamableHTTP)
	by.Session, by.As = id, client.OwnerOf(caller, id, hostOf(r))
	h.bridge.Resume(r.Context(), s, says, k.Level, slices.Sorted(maps.Keys(k.Follows)), by)
	h.sessions.opened(u)
	if h.sessions.elsewhere == nil {
		h.sessions.kept.Resumed(id)
	}
	if removed(r.Context()) {
		h.endSessions(h.sessions.removeOne(u))
		return nil, nil
	}
	return u, nil
}

// stopping refuses requests of sessions with which the next process goes on.
var stopping = &noRoom{http.StatusServiceUnavailable, fault.NotReady, "Orla is stopping; the session goes on when it is started again"}

// leaves reports whether all sessions end here, and the next process or another replica goes on with them.
func (h *Front) leaves() bool {
	return h.sessions.closing.Load() && (h.sessions.kept != nil || h.sessions.elsewhere != nil)
}

// over refuses a request whose session there is not, or has just ended.
func (h *Front) over(w http.ResponseWriter, s sender) {
	switch {
	case s.full != nil:
		s.full.refuse(w, nil)
	case h.leaves(): // since the session was looked for
		stopping.refuse(w, nil)
	default:
		http.Error(w, "session not found", http.StatusNotFound) // so that the client begins a new one
	}
}
