package outbound

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/orla-project/orla/internal/call/fault"
)

const maxRedirects = 5

// kept are the headers that may follow a redirect to another host. Which others
// are a secret is nothing that can be known here.
var kept = [...]string{"Accept", "Accept-Language", "Range", "User-Agent"}

// hop is the context of one request, and tells the next one, if it is redirected,
// how public the addresses have to be.
type hop struct {
	context.Context
	is    classifier
	floor class        // classLoopback before a redirect
	seen  atomic.Bool  // there was a connection
	class atomic.Int32 // of its other end
	conn  atomic.Pointer[paced]

	conns  atomic.Int32 // that it was tried on
	giveUp context.CancelFunc
}

type hopKey struct{}

// Value implements context.Context.
func (h *hop) Value(key any) any {
	if key == (hopKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// connected is of httptrace.ClientTrace.
func (h *hop) connected(info httptrace.GotConnInfo) {
	h.class.Store(int32(h.is.class(info.Conn.RemoteAddr())))
	h.seen.Store(true)
	if h.conns.Add(1) > maxConns {
		h.giveUp()
	}
	conn := pacedOf(info.Conn)
	h.conn.Store(conn)
	conn.asked(perRequest)
}

// floorOf is the class that the address of a request must have at least: of a
// redirected one that of the first request's address.
func floorOf(req *http.Request) class {
	if req.Response == nil {
		return classLoopback
	}
	if last := req.Response.Request; last != nil {
		if h, ok := last.Context().Value(hopKey{}).(*hop); ok {
			if last.Response != nil { // a redirect led there
				return h.floor
			}
			return class(h.class.Load())
		}
	}
	return classPublic // nobody knows where it comes from
}

// stay is a policy that follows no redirect.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// redirect decides whether req may follow the requests in via.
func redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	req.Header.Del("Referer") // it has the query
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fault.New(fault.ExecutionFailed, "%s redirects to what is not HTTP", Origin(first.URL))
	}
	if len(via) > maxRedirects {
		return fault.New(fault.ExecutionFailed, "%s redirects more than %d times", Origin(first.URL), maxRedirects)
	}
	away := !sameHost(first.URL, req.URL)
	for _, earlier := range via[1:] { // who comes back has been elsewhere
		away = away || !sameHost(first.URL, earlier.URL)
	}
	if !away {
		return nil
	}
	if first.Method != http.MethodGet && first.Method != http.MethodHead {
		return fault.New(fault.ExecutionFailed,
			"%s redirects to another host (%s), where neither the arguments nor the credentials may follow; name the right host in the endpoint", Origin(first.URL), Origin(req.URL))
	}
	clean := http.Header{}
	for _, name := range kept {
		if values, ok := req.Header[name]; ok {
			clean[name] = values
		}
	}
	req.Header = clean
	req.URL.User = nil
	req.Close = true // a service can name any number of hosts, and idle connections are bounded for each
	return nil
}

// sameHost reports whether what was meant for one URL may go to the other: scheme,
// name and port are the same, or plain HTTP has become HTTPS.
func sameHost(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return port(from) == port(to)
	}
	return from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// Origin is where a URL leads, for messages: scheme, host and port, which hold no
// secret.
func Origin(u *url.URL) string { return u.Scheme + "://" + u.Host }
