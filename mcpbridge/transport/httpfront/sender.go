package httpfront

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// sender is who sent a POST.
type sender struct {
	subject string      // see subject
	host    string      // see hostOf
	session string      // the id of the session that it names; "" if it names none
	own     *usage      // that session, if it exists and belongs to the caller; else nil
	full    *noRoom     // why that session of an earlier process cannot go on now
	owner   turns.Owner // whose share it uses: that of its caller, and within it that of its session
}

func (h *Front) senderOf(r *http.Request) sender {
	s := sender{subject: subject(r), host: hostOf(r), session: header(r, wire.SessionHeader)}
	id := ""
	if s.session != "" {
		if s.own = h.sessions.find(s.session, s.subject); s.own == nil {
			s.own, s.full = h.resume(r, s.session, s.subject)
		}
		if s.own != nil {
			id = s.session
		}
	}
	s.owner = client.OwnerOf(s.subject, id, s.host)
	return s
}

// tooLarge ends the question of the sender's session that a message answers which is too large.
func (s sender) tooLarge(message io.Reader, limit int64) {
	if s.own != nil {
		s.own.Questions.TooLarge(message, limit)
	}
}

// anonymous is the caller of a request without authentication (SPEC N1).
const anonymous = "anonymous"

// originOf returns the origin of an HTTP request.
func originOf(r *http.Request, subject, host string, by client.Transport) client.Origin {
	return client.Origin{
		Caller: cmp.Or(subject, anonymous), Subject: subject, Groups: groupsOf(r), Host: host, Transport: by,
		Version: header(r, wire.VersionHeader), Parent: client.ParentOf(r.Header),
	}
}

// hostOf returns the address that a request came from, without the port. For an IPv6 address it
// returns the network; see turns.Network.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr // of a unix socket
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if network := turns.Network(addr); network != addr {
			return network.String()
		}
	}
	return host
}

// headersRead drops the headers of a request when they are not needed any more, so that they do
// not use memory until it is answered. The answer may be a stream.
func (h *Front) headersRead(r *http.Request, stream bool) {
	clear(r.Header) // copies of the request share the map
	r.Header = nil
	h.bridge.HeadersRead(r.Context(), stream)
}

// header returns the first value of a header of a request.
func header(r *http.Request, canonical string) string { return wire.FirstHeader(r.Header, canonical) }

func partyOf(r *http.Request, program string) party {
	if who := subject(r); who != "" {
		return party{who: who, caller: who}
	}
	return party{"at " + hostOf(r), anonymous, program}
}
