// Package console is the web page of a running Orla (SPEC O): its files, and who gets in. What it shows comes from
// an API that it is given, below /api/. docs/decisions/0049 has the design.
//
// Its invariant: no request reaches the API that does not come from this page in a browser to which the control socket
// gave a link, on this machine, or that has shown a token.
package console

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/observe/brief"
)

// The bounds of a console.
const (
	maxRequests = 64       // of the API at once, without streams; a guest has at most half of what others leave
	maxStreams  = 32       // of all sessions, shared in the same way
	maxOwn      = 6        // streams of one session
	maxBody     = 4 << 20  // of a request, in bytes
	maxLogin    = 16 << 10 // of a login
	maxLogins   = 8        // that ask the authorization server at once; a network has at most half of what others leave
	maxBodies   = 512      // of logins, that wait until they are read
	maxRefused  = 10       // lines about refused logins in the log in a minute
)

// Options configures a Console.
type Options struct {
	// API answers the requests below /api/, of which it gets the rest of the path. Required.
	API http.Handler
	// Instance names this Orla, in letters and digits: browsers send a cookie to all ports of a host, so the cookies of
	// two Orlas need different names.
	Instance string
	// Admitted, if not nil, is called with the context of each request that was let in.
	Admitted func(context.Context, Guest)
	// As, if not nil, returns the context in which the API answers a request.
	As func(context.Context, Visit) context.Context
	// HeadersRead, if not nil, is called with the context of each stream when its headers are not needed any more.
	HeadersRead func(context.Context)
	// Log is required.
	Log *slog.Logger
}

// Console serves the page. Its methods may be called from any goroutine.
type Console struct {
	opts     Options
	off      atomic.Bool
	doors    atomic.Pointer[Doors]
	access   access
	refused  brief.Limiter // of the log: whoever reaches the port can try links
	files    func() map[string]file
	requests *turns.Shares // of maxRequests
	streams  *turns.Shares // of maxStreams
	entering entering
	over     context.Context
	end      context.CancelFunc
}

// entering bounds what somebody makes Orla do who is not in yet.
type entering struct {
	logins  *turns.Shares // of maxLogins, for answers of the authorization server
	tickets *turns.Shares // of as many, for logins that begin: as a rule they ask nobody
	bodies  *turns.Door   // where the bodies of logins are read
}

// New returns a Console, which uses nothing until somebody asks for a link.
func New(opts Options) *Console {
	if opts.Admitted == nil {
		opts.Admitted = func(context.Context, Guest) {}
	}
	if opts.As == nil {
		opts.As = func(ctx context.Context, _ Visit) context.Context { return ctx }
	}
	if opts.HeadersRead == nil {
		opts.HeadersRead = func(context.Context) {}
	}
	over, end := context.WithCancel(context.Background())
	c := &Console{
		opts: opts, files: sync.OnceValue(readFiles), over: over, end: end,
		requests: turns.NewShares(maxRequests), streams: turns.NewShares(maxStreams),
		entering: entering{turns.NewShares(maxLogins), turns.NewShares(maxLogins), turns.NewDoor(1, maxBodies, loginWait)},
	}
	c.doors.Store(&Doors{})
	return c
}

// Patterns are the patterns of http.ServeMux that a Console serves.
func Patterns() []string { return []string{"/{$}", "/console/", "/api/"} }

// Turn serves the page or not. Turning it off ends all sessions.
func (c *Console) Turn(on bool) {
	c.off.Store(!on)
	if !on {
		c.access.clear()
	}
}

// On reports whether the page is served.
func (c *Console) On() bool { return !c.off.Load() && c.over.Err() == nil }

// EndSessions ends all sessions with their streams, and makes no link good any more.
func (c *Console) EndSessions() { c.access.clear() }

// Close ends all sessions with their streams, for good.
func (c *Console) Close() {
	c.end()
	c.access.clear()
}

// Link returns the path of a link that lets one browser in as a guest, once, and until when.
func (c *Console) Link(g Guest) (path string, until time.Time) {
	code, until := c.access.issue(g, time.Now())
	return "/console/login#" + code, until
}

// cookie is the name of the cookie of a session.
func (c *Console) cookie() string { return "orla_console_" + c.opts.Instance }

// keyHeader is the header with the second half of a session's secret.
const keyHeader = "X-Orla-Console"

// ServeHTTP serves the page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if !c.On() {
		refuse(w, http.StatusNotFound, "the console is off", "")
		return
	}
	if why := c.foreign(r); why != nil {
		why.send(w)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/"):
		c.serveAPI(w, r)
	case r.Method == http.MethodPost && r.URL.Path == loginPath:
		c.login(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/console/ticket":
		c.ticket(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/console/door":
		c.door(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/console/logout":
		if s := c.sessionOf(r); s != nil {
			c.access.drop(s)
		}
		c.setCookie(w, "", strings.HasPrefix(r.Header.Get("Origin"), "https:"), -1)
		answer(w, http.StatusOK, struct{}{})
	default:
		c.serveFile(w, r)
	}
}

// loginPath is where links lead.
const loginPath = "/console/login"

// sessionOf returns the session of a request; nil for none. It needs both halves of the secret.
func (c *Console) sessionOf(r *http.Request) *session {
	key := r.Header[keyHeader]
	if len(key) != 1 {
		return nil
	}
	s := c.holder(r)
	if s == nil || !s.has(key[0]) {
		return nil
	}
	return s
}

// holder returns the session whose cookie a request has; nil for none.
func (c *Console) holder(r *http.Request) *session {
	cookies := r.CookiesNamed(c.cookie())
	if len(cookies) != 1 { // of two, one was set by somebody else
		return nil
	}
	s := c.access.find(cookies[0].Value, time.Now())
	if s == nil || s.Token == "" && !isLocal(r) {
		return nil
	}
	if d := c.doors.Load(); s.Token != "" && (d.Token == nil || !d.Still(s.Guest)) { // it entered while the doors changed
		c.access.drop(s)
		return nil
	}
	if from := r.Header["Origin"]; len(from) > 0 && !strings.EqualFold(from[0], s.origin) { // it was entered by TLS, for example
		return nil
	}
	return s
}

// serveAPI passes a request of the page on to the API.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request) {
	s := c.sessionOf(r)
	if s == nil {
		refuse(w, http.StatusUnauthorized, "This page has no session with this Orla.", "orla console prints a link")
		return
	}
	places, stream := c.requests, isStream(r)
	if stream {
		places = c.streams
		if !s.begin() {
			refuse(w, http.StatusTooManyRequests, "This browser has too many pages of the console open.", "close some of them")
			return
		}
		defer s.done()
	}
	if !places.Try(s.owner(), 1) {
		refuse(w, http.StatusTooManyRequests, "Too much is asked of the console at once.", "try again")
		return
	}
	defer places.Give(s.owner(), 1)
	c.opts.Admitted(r.Context(), s.Guest)
	ctx, cancel := context.WithCancel(c.opts.As(r.Context(), Visit{s.Guest, s.origin, s.id(), s.entered, c.redeem}))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // it ends with either
	if stream {
		c.opts.HeadersRead(r.Context())
	}
	inner := r.Clone(ctx)
	inner.URL.Path, inner.URL.RawPath = strings.TrimPrefix(r.URL.Path, "/api"), strings.TrimPrefix(r.URL.RawPath, "/api")
	inner.Header = http.Header{"Content-Type": r.Header["Content-Type"]} // the API is not to see who asks
	inner.Body = http.MaxBytesReader(w, r.Body, maxBody)
	c.opts.API.ServeHTTP(w, inner)
}

// redeem returns whose link a text is, or is the code of.
func (c *Console) redeem(link string) (Guest, bool) {
	if _, code, ok := strings.Cut(link, "#"); ok {
		link = code
	}
	return c.access.redeem(strings.TrimSpace(link), time.Now())
}

// isStream reports whether an answer goes on until the client leaves.
func isStream(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/watch") || strings.HasSuffix(r.URL.Path, "/events") || r.URL.Query().Has("follow")
}
