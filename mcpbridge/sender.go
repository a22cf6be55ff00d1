package mcpbridge

import (
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/internal/turns"
)

// sender is who has sent a POST.
type sender struct {
	subject string     // see subject
	host    string     // see hostOf
	session string     // the id of the session that it names; "" if it names none
	own     bool       // that session is its own
	says    client     // of an own session: what its client has said
	line    turns.Line // whose share it takes: its caller's, and of that its own session's
}

func (h *HTTP) senderOf(r *http.Request) sender {
	s := sender{subject: subject(r), host: hostOf(r), session: header(r, sessionHeader)}
	id := ""
	if s.session != "" {
		if s.says, s.own = h.sessions.owns(s.session, s.subject); s.own {
			id = s.session
		}
	}
	s.line = lineOf(s.subject, id, s.host)
	return s
}

// metas is whose _meta is remembered: the caller's, or else that of the address.
func (s sender) metas() string {
	if s.subject != "" {
		return s.subject
	}
	return s.host
}

// subject is the authenticated caller of a request, "" without authentication.
func subject(r *http.Request) string {
	if info := auth.TokenInfoFromContext(r.Context()); info != nil {
		return info.UserID
	}
	return ""
}

// hostOf is the address that a request came from, without the port.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr // of a unix socket
	}
	return host
}

// header is the first value of a header whose name is in its canonical form, which
// http.Header.Get would make each time.
func header(r *http.Request, canonical string) string {
	if values := r.Header[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}
