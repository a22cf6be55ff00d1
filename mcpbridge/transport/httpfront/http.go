package httpfront

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// DefaultMaxRequest bounds a request's body in bytes (SPEC G7).
	DefaultMaxRequest = 16 << 20
	// DefaultSessionTimeout is after how long an idle session expires. It is
	// long, because few clients begin a new session by themselves; a session
	// whose event stream is open is not idle.
	DefaultSessionTimeout = 12 * time.Hour
	// DefaultMaxSessions bounds the sessions at one time. Past it, the client
	// with the most of them makes room; see sessions.admit.
	DefaultMaxSessions = 10_000
)

// maxOpenings is how many sessions may begin at once. To begin one takes many
// times what a call does, and all that comes together is served side by side:
// who floods with them would take all of the processor.
const maxOpenings = 2

// moment is how long a request counts for what its caller may have worked on beside
// others: most are answered by then, and the others wait for something.
const moment = 2 * time.Millisecond

// bytesAMoment are as many bytes of a request as may take a moment to look through and to
// decode: a large one works for longer before it waits for anything.
const bytesAMoment = 10 << 10

// batchAMoment are as many bytes of a batch: each of its small messages is a request.
const batchAMoment = 1 << 10

// Settings is what may change while the front is serving.
type Settings struct {
	// AllowedOrigins are the web origins whose pages may call ("https://host[:port]").
	AllowedOrigins []string
	// AllowedHosts are names beside localhost and IP addresses that a Host
	// header may have. They matter where no Verify guards the front.
	AllowedHosts []string
	// Loopback says that the front listens on loopback only, so that any
	// other Host is a web page's trick (DNS rebinding).
	Loopback bool
	// Verify checks bearer tokens. If nil, none is asked for.
	Verify auth.TokenVerifier
	// Callers are the callers that Verify knows, each with a key that changes when its
	// token does. What a caller has that is missing or has another key in the next
	// settings ends: requests, streams, sessions, calls and kept answers.
	Callers map[string]string
	// MaxRequest bounds a request's body in bytes. If zero, DefaultMaxRequest.
	MaxRequest int64
	// SessionTimeout is after how long an idle session expires. If zero,
	// DefaultSessionTimeout.
	SessionTimeout time.Duration
	// MaxSessions bounds the sessions. If zero, DefaultMaxSessions.
	MaxSessions int

	access map[string]*access // of Callers; that of "" is everyone's without Verify
}

// Front is the HTTP front of a Bridge: /mcp, /sse, /healthz, /readyz, /metrics, and
// what Handle adds. It may
// serve any number of requests at once, and Configure may be called meanwhile.
type Front struct {
	bridge   *mcpbridge.Bridge
	log      *slog.Logger
	mux      *http.ServeMux
	settings atomic.Pointer[Settings]
	sessions *sessions
	sse      *sse
	limits   Limits
	openings *turns.Queue // bounds the sessions that begin at once
	working  *turns.Queue // lets one caller's requests take half of the processors beside others
	draining atomic.Bool
	calls    budget.Counter // requests that end by themselves: POSTs, but for subscriptions
}

// New returns a bridge's HTTP front.
func New(b *mcpbridge.Bridge, settings Settings) *Front {
	h := &Front{bridge: b, log: b.Log(), mux: http.NewServeMux(), sse: newSSE(b), limits: defaultLimits(), openings: turns.NewQueue(maxOpenings, 0), working: turns.NewAging(turns.NoLimit, max(1, runtime.NumCPU()/2), moment)}
	h.sessions = newSessions()
	h.Configure(settings)
	h.mux.HandleFunc("GET /healthz", h.health)
	h.mux.HandleFunc("GET /readyz", h.ready)
	if metrics := b.Metrics(); metrics != nil {
		h.mux.Handle("GET /metrics", h.guarded(scrapes(metrics)))
	}
	h.mux.Handle("/mcp", h.guarded(http.HandlerFunc(h.serveMCP)))
	h.mux.Handle("/sse", h.guarded(http.HandlerFunc(h.serveSSE)))
	return h
}

// Handle serves what is not MCP at a pattern of its own (http.ServeMux). Who may
// reach it is for next to say: no Host, Origin or token is asked for. A part of
// its path that the pattern leaves open is kept out of the log. Handle must be
// called before the first request.
func (h *Front) Handle(pattern string, next http.Handler) { h.mux.Handle(pattern, next) }

// Configure makes settings those of every request from now on. It is called by one
// goroutine at a time.
func (h *Front) Configure(settings Settings) {
	if settings.MaxRequest == 0 {
		settings.MaxRequest = DefaultMaxRequest
	}
	if settings.SessionTimeout == 0 {
		settings.SessionTimeout = DefaultSessionTimeout
	}
	if settings.MaxSessions == 0 {
		settings.MaxSessions = DefaultMaxSessions
	}
	settings.AllowedHosts, settings.AllowedOrigins = slices.Clone(settings.AllowedHosts), slices.Clone(settings.AllowedOrigins)
	for i, host := range settings.AllowedHosts {
		settings.AllowedHosts[i] = hostEntry(bareHost(host))
	}
	for i, origin := range settings.AllowedOrigins {
		settings.AllowedOrigins[i] = originName(origin)
	}
	callers := settings.Callers
	if settings.Verify == nil {
		callers = map[string]string{"": ""}
	}
	gone := map[string]*access{}
	if before := h.settings.Load(); before != nil {
		maps.Copy(gone, before.access)
	}
	settings.access = accessOf(callers, gone)
	maps.DeleteFunc(gone, func(name string, a *access) bool { return settings.access[name] == a })
	h.settings.Store(&settings)
	h.endCallers(gone)
}

// String names the front in logs.
func (h *Front) String() string { return "http sessions" }

// Serve ends the sessions that are idle for too long, until ctx ends.
func (h *Front) Serve(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.Expire(h.settings.Load().SessionTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Expire ends the sessions that were idle for longer than timeout.
func (h *Front) Expire(timeout time.Duration) { h.endSessions(h.sessions.idle(timeout)) }

// SetLimits makes how long the front waits for its clients another. It must be called before
// the first request.
func (h *Front) SetLimits(change func(*Limits)) { change(&h.limits) }

// Openings is the queue of the sessions that begin.
func (h *Front) Openings() *turns.Queue { return h.openings }

// Drain makes /readyz say that no new work is wanted (SPEC G6).
func (h *Front) Drain() { h.draining.Store(true) }

// CloseSessions ends every session and stream, so that a server's Shutdown
// does not wait for them. Calls that have ended still get their answers out.
func (h *Front) CloseSessions() {
	h.awaitCalls()
	h.sse.closeAll()
	h.endSessions(h.sessions.remove(func(*usage) bool { return true }))
	h.sessions.endStreams()
	h.awaitCalls() // of those that came meanwhile
}

// awaitCalls waits a moment for the calls that are being answered.
func (h *Front) awaitCalls() {
	grace := time.NewTimer(h.limits.Answers)
	defer grace.Stop()
	select {
	case <-h.calls.None():
	case <-grace.C:
	}
}

// ServeHTTP serves one request and writes a line about it at debug.
func (h *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	out := newResponse(w, h.limits)
	defer out.finish()
	if r.ContentLength != 0 {
		// It holds for what the server reads of a refused request, too.
		until := began.Add(h.limits.Body)
		_ = out.control.SetReadDeadline(until) // a recorder in a test has none
		if r.ContentLength < 0 || r.ContentLength > budget.Small {
			r.Body = &pacedBody{ReadCloser: r.Body, control: out.control, patience: h.limits.Body, until: until}
		}
	}
	logged, session := h.log.Enabled(r.Context(), slog.LevelDebug), ""
	if logged {
		session = wire.Shortened(header(r, wire.SessionHeader)) // it may not be there afterwards
	}
	h.mux.ServeHTTP(out, r)
	if logged {
		out.mu.Lock()
		status := out.status
		out.mu.Unlock()
		h.log.Debug("request", "method", r.Method, "path", loggedPath(r), "status", cmp.Or(status, http.StatusOK),
			"duration_ms", float64(time.Since(began).Microseconds())/1000,
			"session", session, "remote", r.RemoteAddr)
	}
}

// loggedPath is a request's path, without what may be a secret: a part that has
// no name of its own.
func loggedPath(r *http.Request) string {
	if strings.Contains(r.Pattern, "{") {
		return r.Pattern
	}
	return r.URL.Path
}

// Sessions returns how many sessions and streams are open.
func (h *Front) Sessions() int { return h.sessions.count() }

func (h *Front) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, `{"status":"ok"}`)
}

// ready says whether new work is wanted: 503 while draining, while every call is
// denied and while something is starting. Those who may not list tools get the
// status alone (SPEC N2).
func (h *Front) ready(w http.ResponseWriter, r *http.Request) {
	known := h.known(r)
	if h.draining.Load() {
		writeJSON(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
		return
	}
	if h.bridge.Denied() {
		writeJSON(w, http.StatusServiceUnavailable, `{"status":"denied"}`)
		return
	}
	if names := h.bridge.Starting(); len(names) > 0 {
		says := map[string]any{"status": "starting"}
		if known {
			says["waiting_for"] = names
		}
		body, err := json.Marshal(says)
		if err != nil { // names are strings
			panic(err)
		}
		writeJSON(w, http.StatusServiceUnavailable, string(body))
		return
	}
	if !known {
		writeJSON(w, http.StatusOK, `{"status":"ready"}`)
		return
	}
	writeJSON(w, http.StatusOK, fmt.Sprintf(`{"status":"ready","tools":%d}`, h.bridge.Tools()))
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body+"\n") // the client's leaving is its own business
}

// under returns the response that the front's own handlers write to.
func under(w http.ResponseWriter) *response {
	out, ok := w.(*response)
	if !ok {
		panic(fmt.Sprintf("httpfront: %T between ServeHTTP and its handlers", w))
	}
	return out
}

// workOn waits until a request may be worked on. The place has to be given back.
func (h *Front) workOn(ctx context.Context, from turns.Owner, body []byte) (*turns.Brief, error) {
	each := bytesAMoment
	if wire.IsBatch(body) {
		each = batchAMoment
	}
	return h.working.TakeLonger(ctx, from, 1+len(body)/each)
}

// serveSSE serves the transport of 2024-11-05.
func (h *Front) serveSSE(w http.ResponseWriter, r *http.Request) {
	settings := h.settings.Load()
	switch r.Method {
	case http.MethodGet:
		r, leave, ok := h.admitStream(r)
		if !ok {
			crowded(w, nil, noSession)
			return
		}
		defer leave()
		from := originOf(r, subject(r), hostOf(r), client.LegacySSE)
		h.headersRead(r)
		w.Header().Set("X-Accel-Buffering", "no")
		under(w).keepAlive(false)
		h.sse.stream(w, r, settings.MaxRequest, from)
	case http.MethodPost:
		from := h.sse.ownerOf(r)
		body, held, ok := h.readBody(w, r, from)
		if held == nil {
			held = budget.NewShare(h.bridge.Requests(), from)
		}
		defer held.End()
		if !ok || !h.waits(w, r, held, body) {
			return
		}
		place, err := h.workOn(r.Context(), from, body)
		if err != nil {
			return // the client has left
		}
		held.Work(place)
		h.sse.post(w, r, body, held, subject(r)) //nolint:contextcheck // a request has the context of its stream
	default:
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, "GET opens a stream, POST sends a message")
	}
}
