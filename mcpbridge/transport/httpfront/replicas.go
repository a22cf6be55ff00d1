package httpfront

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Share shares the sessions with other replicas. It must be called before the first request, or not at all.
func (h *Front) Share(with passed.Elsewhere) { h.sessions.elsewhere = with }

// home returns the replica that a request is passed on to, for its session or since this one stops; "" if this one answers it.
func (h *Front) home(r *http.Request) string {
	id := header(r, wire.SessionHeader)
	if h.sessions.elsewhere == nil || passed.From(r.Context()) != nil || !h.draining.Load() && (id == "" || h.sessions.find(id, subject(r)) != nil) {
		return ""
	}
	return h.sessions.elsewhere.Home(r.Context(), id)
}

// namedBy returns the replica that has what a request of the stateless era names: a conversation, or a kept answer; "" if this
// one may have it.
func (h *Front) namedBy(r *http.Request, m *wire.Message) string {
	if h.sessions.elsewhere == nil || passed.From(r.Context()) != nil || header(r, wire.VersionHeader) < wire.FirstStateless {
		return ""
	}
	for _, raw := range []json.RawMessage{m.Params.State, m.Params.URI} {
		if name, ok := wire.TextOf(raw); ok && name != "" {
			if to := h.sessions.elsewhere.NamedBy(name); to != "" {
				return to
			}
		}
	}
	return ""
}

// newID returns an id for a new session.
func (h *Front) newID(caller string, says wire.Declared) string {
	if h.sessions.elsewhere == nil {
		return rand.Text()
	}
	return h.sessions.elsewhere.ID(&sessionlog.Record{Caller: caller, Access: h.accessDigest(caller), Says: says.Params()})
}

// passInTurn passes a request on of which nothing was read, in its caller's turn: another one counts it at the replica that answers.
func (h *Front) passInTurn(w http.ResponseWriter, r *http.Request, to string) {
	if r.Method == http.MethodPost { // others have had their turn
		owner := client.OwnerOf(subject(r), "", hostOf(r))
		place, err := h.Working.TakeBriefly(r.Context(), owner)
		if err != nil {
			return // the client has left
		}
		defer place.Give()
		r = r.WithContext(r.Context()) // a copy: the server looks at its own body
		r.Body = &inTurn{ReadCloser: r.Body, ctx: r.Context(), working: h.Working, owner: owner}
	}
	h.pass(w, r, to, nil)
}

// pass passes a request on. body is what was read of it; nil for nothing.
func (h *Front) pass(w http.ResponseWriter, r *http.Request, to string, body []byte) {
	by := &passed.Caller{Name: subject(r), Groups: groupsOf(r), Host: hostOf(r)}
	if body != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	h.sessions.elsewhere.Pass(w, r, to, by, http.HandlerFunc(h.serveMCP))
}

// admitPassed has next serve a request that another replica has passed on, if its caller is known here too.
func (h *Front) admitPassed(w http.ResponseWriter, r *http.Request, by *passed.Caller, next http.Handler) bool {
	s := h.settings.Load()
	a := s.access[accessKey(by.Name)]
	if s.Verify == nil {
		a = s.access[""]
	}
	if a == nil {
		refuse(w, http.StatusServiceUnavailable, "the replica that has the session does not know the caller yet, or not any more")
		return false
	}
	if by.Name != "" {
		r = withCaller(r, &auth.TokenInfo{UserID: by.Name, Extra: map[string]any{GroupsKey: by.Groups}})
	}
	r, end := a.during(r)
	defer end()
	h.serveCaller(w, r, next)
	return true
}
