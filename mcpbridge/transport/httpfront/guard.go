package httpfront

import (
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/mcpbridge/transport/hosts"
	"github.com/orla-project/orla/mcpbridge/transport/passed"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// guarded passes on only requests that may call tools: with an allowed Host, not from another web
// page, with a valid token if tokens are configured, and with JSON (SPEC G8).
func (h *Front) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		under(w).guarded = true
		if !h.admit(w, r, next) {
			h.waitTurn(r, strangerOf(r)) // before the answer goes out
		}
	})
}

// admit has next serve the request of a caller. It reports false if it refused the request, or
// answered one that has no caller.
func (h *Front) admit(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
	s := h.settings.Load()
	if by := passed.From(r.Context()); by != nil {
		return h.admitPassed(w, r, by, next)
	}
	if why := s.forbids(r); why != "" {
		refuse(w, http.StatusForbidden, why)
		return false
	}
	if origin := header(r, "Origin"); origin != "" {
		hosts.AllowCORS(w, origin)
		if r.Method == http.MethodOptions {
			hosts.Preflight(w, r)
			return false
		}
	}
	if s.Verify == nil {
		h.serveCaller(w, r, next)
		return true
	}
	info, ok := s.authenticate(w, r)
	if !ok {
		return false
	}
	r = withCaller(r, info)
	r, end := s.access[accessKey(info.UserID)].during(r) // it ends when the token is removed
	defer end()
	h.serveCaller(w, r, next)
	return true
}

// forbids says why a request is refused for where it comes from; "" if it is not.
func (s *Settings) forbids(r *http.Request) string {
	switch {
	case s.Verify == nil && s.Loopback && !hosts.FromThisMachine(r):
		return "this server is for its own machine alone; give it tokens for others"
	case s.Verify == nil && !hosts.Allowed(r.Host, s.AllowedHosts, s.Loopback):
		return "the Host header is not one of this server's names; add it to allowed_hosts"
	case !hosts.OriginAllowed(r, s.AllowedOrigins):
		return "the page's origin may not call this server; add it to allowed_origins"
	}
	return ""
}

// serveCaller has next serve the request of a caller. For a POST with JSON, next takes a place of
// h.Working. Other requests wait for their turn in h.light.
func (h *Front) serveCaller(w http.ResponseWriter, r *http.Request, next http.Handler) {
	h.bridge.Admitted(r.Context(), subject(r))
	post := r.Method == http.MethodPost
	if post && wire.IsJSON(header(r, "Content-Type")) {
		next.ServeHTTP(w, r)
		return
	}
	h.waitTurn(r, h.senderOf(r).owner)
	if post {
		// A web page can send other types without a preflight request, so they must not reach a tool.
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be "+wire.JSONType)
		return
	}
	next.ServeHTTP(w, r)
}

// seesAll reports whether a request may list all tools: it has a valid token of a caller who may, if tokens are configured,
// or else it has an allowed Host and Origin.
func (h *Front) seesAll(r *http.Request) bool {
	s := h.settings.Load()
	if s.Verify == nil {
		return s.forbids(r) == "" && h.bridge.SeesAll(anonymous, nil)
	}
	token, ok := bearerToken(r)
	if !ok {
		return false
	}
	info, err := s.Verify(r.Context(), token, r)
	r = withCaller(r, info)
	return err == nil && h.bridge.SeesAll(subject(r), groupsOf(r))
}

// refuse answers a request with a JSON-RPC error without an id, which every client can show.
func refuse(w http.ResponseWriter, status int, text string) {
	writeError(w, status, nil, jsonrpc.CodeInvalidRequest, text)
}

func writeError(w http.ResponseWriter, status int, id json.RawMessage, code int64, text string) {
	writeJSON(w, status, string(wire.ErrorJSON(id, code, text)))
}
