package outbound

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/orla-project/orla/internal/call/fault"
)

const maxRedirects = 5

// kept are the headers that are sent to another host after a redirect. Any other header may be a
// secret.
var kept = [...]string{"Accept", "Accept-Language", "Range", "User-Agent"}

// hop is the context of one request. After a redirect the next request gets from it how public its
// address must be.
type hop struct {
	context.Context
	is    classifier
	floor class        // classLoopback before a redirect
	seen  atomic.Bool  // there was a connection
	class atomic.Int32 // of its remote address
	conn  atomic.Pointer[paced]

	conns  atomic.Int32 // connections that were tried
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

// connected implements httptrace.ClientTrace.GotConn.
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

// floorKey is the key of the least class in a context.
type floorKey struct{}

// ClassOf returns how public the address is that gave an answer: loopback, private or public.
func ClassOf(resp *http.Response) string {
	if resp.Request != nil {
		if h, ok := resp.Request.Context().Value(hopKey{}).(*hop); ok {
			return classNames[h.class.Load()]
		}
	}
	return classNames[classPublic]
}

// AnyClass stands for an address that may lead to each that the policy allows: a person has named it.
const AnyClass = "loopback"

// NoLessPublic returns a context for requests to addresses that are at least as public as a class, which
// ClassOf has returned. An unknown class is public.
func NoLessPublic(ctx context.Context, of string) context.Context {
	floor := classPublic
	if i := slices.Index(classNames[:], of); i >= 0 {
		floor = class(i)
	}
	return context.WithValue(ctx, floorKey{}, floor)
}

// floorOf returns the least class that the address of a request must have: that of NoLessPublic, and for
// a redirected request that of the first request's address.
func floorOf(req *http.Request) class {
	floor, _ := req.Context().Value(floorKey{}).(class) // classLoopback if none was set
	return max(floor, redirectedFrom(req))
}

// redirectedFrom returns the class of the address whose redirect has led to a request.
func redirectedFrom(req *http.Request) class {
	if req.Response == nil {
		return classLoopback
	}
	if last := req.Response.Request; last != nil {
		if h, ok := last.Context().Value(hopKey{}).(*hop); ok {
			if last.Response != nil { // the request was redirected
				return h.floor
			}
			return class(h.class.Load())
		}
	}
	return classPublic // its origin is not known
}

// stay is a CheckRedirect function that follows no redirect.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// redirect is a CheckRedirect function with the rules of Client.Do.
func redirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	req.Header.Del("Referer") // it contains the query
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return fault.New(fault.ExecutionFailed, "%s redirects to a URL that is not http or https", Origin(first.URL))
	}
	if len(via) > maxRedirects {
		return fault.New(fault.ExecutionFailed, "%s redirects more than %d times", Origin(first.URL), maxRedirects)
	}
	away := !sameHost(first.URL, req.URL)
	for _, earlier := range via[1:] { // a redirect back to the first host still came from another one
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
	req.Close = true // idle connections are bounded per host, and a service can name any number of hosts
	return nil
}

// sameHost reports whether a request for one URL may be sent to the other: scheme, host name and
// port are the same, or HTTP has become HTTPS.
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

// Origin returns the scheme, host and port of a URL, for messages. They contain no secret.
func Origin(u *url.URL) string { return u.Scheme + "://" + u.Host }
