package httpfront

import (
	"cmp"
	"context"
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
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/sessionlog"
	"github.com/orla-project/orla/mcpbridge/transport/hosts"
	"github.com/orla-project/orla/mcpbridge/transport/legacysse"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// DefaultMaxRequest bounds a request's body in bytes (SPEC G7).
	DefaultMaxRequest = 16 << 20
	// DefaultSessionTimeout is after how long an idle session expires. It is long, because
	// few clients begin a new session by themselves. A session whose event stream is open is
	// not idle.
	DefaultSessionTimeout = 12 * time.Hour
	// DefaultMaxSessions bounds the sessions at one time. At the limit, the client with the
	// most sessions loses one; see sessions.admit.
	DefaultMaxSessions = 10_000
)

// maxOpenings is how many sessions may begin at once. To begin a session costs many times as much
// as a call, so that a client that begins many would take all of the processor.
const maxOpenings = 2

// moment is how long a request counts among those that its caller may have worked on at once. Most
// requests are answered by then, and the others wait for something.
const moment = 2 * time.Millisecond

// bytesAMoment is about how many bytes of a request can be read and decoded in a moment. A larger
// request counts for longer.
const bytesAMoment = 10 << 10

// batchAMoment is the same for a batch, of which each message is a request.
const batchAMoment = 1 << 10

// Settings is what may change while the front is serving.
type Settings struct {
	// AllowedOrigins are the web origins whose pages may call ("https://host[:port]").
	AllowedOrigins []string
	// AllowedHosts are the names that a Host header may have, in addition to localhost and IP
	// addresses. They are checked only without Verify.
	AllowedHosts []string
	// Loopback says that the front listens on loopback only, so that any other Host means DNS
	// rebinding.
	Loopback bool
	// Verify checks bearer tokens. If nil, no token is required. Its errors are auth.ErrInvalidToken,
	// ErrInsufficientScope or ErrUnavailable, and their texts are shown to clients. The groups of the
	// caller are in TokenInfo.Extra under GroupsKey.
	Verify auth.TokenVerifier
	// ResourceMetadata is where clients find which authorization server gives tokens (RFC 9728); ""
	// if none does.
	ResourceMetadata string
	// Scopes are those that the token of an authorization server needs.
	Scopes []string
	// Callers are the callers that Verify knows, each with a key that changes with its token.
	// IssuedPrefix stands for all callers whose names begin with it.
	// If a caller is missing in the next settings, or has another key, its requests, streams,
	// sessions, calls and kept answers end.
	Callers map[string]string
	// MaxRequest bounds a request's body in bytes. If zero, DefaultMaxRequest.
	MaxRequest int64
	// SessionTimeout is after how long an idle session expires. If zero,
	// DefaultSessionTimeout.
	SessionTimeout time.Duration
	// MaxSessions bounds the sessions. If zero, DefaultMaxSessions.
	MaxSessions int

	access map[string]*access // by caller; "" is everybody without Verify
}

// Front is the HTTP front of a Bridge: /mcp, /sse, /healthz, /readyz, /metrics, and what Handle
// adds. It serves requests concurrently, also with Configure.
type Front struct {
	bridge   *mcpbridge.Bridge
	log      *slog.Logger
	mux      *http.ServeMux
	settings atomic.Pointer[Settings]
	sessions *sessions
	sse      *legacysse.Streams
	// Limits may be changed before the first request.
	Limits   Limits
	openings *turns.Queue // bounds the sessions that begin at once
	Working  *turns.Queue // bounds a caller's requests, of other handlers too, to half of the processors while others have some
	light    *turns.Queue // of the requests that take no place of working; see newLight
	draining atomic.Bool
	calls    budget.Counter // requests that end by themselves: POSTs, but for subscriptions
}

// New returns a bridge's HTTP front.
func New(b *mcpbridge.Bridge, settings Settings) *Front {
	h := &Front{bridge: b, log: b.Log(), mux: http.NewServeMux(), sse: legacysse.New(b), Limits: defaultLimits(), openings: turns.NewQueue(maxOpenings, 0), Working: turns.NewAging(turns.NoLimit, max(1, runtime.NumCPU()/2), moment), light: newLight()}
	h.sessions = newSessions()
	h.Configure(settings)
	h.mux.HandleFunc("GET /healthz", h.health)
	h.mux.HandleFunc("GET /readyz", h.ready)
	if metrics := b.Metrics(); metrics != nil {
		h.mux.Handle("GET /metrics", h.guarded(h.scrapes(metrics)))
	}
	h.mux.Handle("/mcp", h.guarded(http.HandlerFunc(h.serveMCP)))
	h.mux.Handle("/sse", h.guarded(http.HandlerFunc(h.serveSSE)))
	return h
}

// Keep keeps the sessions in a file, and goes on with those that are there (SPEC Q2). It must be called
// before the first request, or not at all. The caller closes the file, after CloseSessions.
// Sessions of callers that do not have access now are forgotten.
func (h *Front) Keep(in *sessionlog.Log) {
	h.sessions.kept = in
	in.Forget(func(r *sessionlog.Record) bool { return r.Access != h.accessDigest(r.Caller) })
}

// Handle adds a handler that is not MCP, at a pattern of http.ServeMux. next checks who may call
// it: Host, Origin and token are not checked here. The log does not show the wildcards of the
// path. Handle must be called before the first request.
func (h *Front) Handle(pattern string, next http.Handler) { h.mux.Handle(pattern, next) }

// Configure sets the settings of all requests from now on. It must be called by one goroutine at a
// time.
func (h *Front) Configure(settings Settings) {
	settings.MaxRequest = cmp.Or(settings.MaxRequest, DefaultMaxRequest)
	settings.SessionTimeout = cmp.Or(settings.SessionTimeout, DefaultSessionTimeout)
	settings.MaxSessions = cmp.Or(settings.MaxSessions, DefaultMaxSessions)
	settings.AllowedHosts, settings.AllowedOrigins = slices.Clone(settings.AllowedHosts), slices.Clone(settings.AllowedOrigins)
	for i, host := range settings.AllowedHosts {
		settings.AllowedHosts[i] = hosts.Entry(hosts.Bare(host))
	}
	for i, origin := range settings.AllowedOrigins {
		settings.AllowedOrigins[i] = hosts.OriginName(origin)
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

// Serve ends sessions that are idle for too long, until ctx ends.
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
func (h *Front) Expire(timeout time.Duration) {
	h.endSessions(h.sessions.idle(timeout))
	h.sessions.kept.Forget(func(r *sessionlog.Record) bool { return time.Since(r.Used) > timeout+sessionlog.NoteEvery })
}

// Drain makes /readyz answer 503, so that no new work comes (SPEC G6).
func (h *Front) Drain() { h.draining.Store(true) }

// CloseSessions ends all sessions and streams, so that a server's Shutdown does not wait for them.
// Calls that have ended are still answered. The next process can go on with the sessions that are kept.
func (h *Front) CloseSessions() {
	h.awaitCalls()
	h.sessions.closing.Store(true)
	h.sse.CloseAll()
	for _, s := range h.sessions.remove(func(*usage) bool { return true }) {
		h.sessions.kept.Used(s.ID)
		h.bridge.EndSession(s)
	}
	h.sessions.endStreams()
	h.awaitCalls() // for those that came while the sessions ended
}

// Answering returns how many calls are being answered, and other requests that end by themselves.
func (h *Front) Answering() int { return h.calls.Open() }

// awaitCalls waits, for Limits.Answers at most, for the calls that are being answered.
func (h *Front) awaitCalls() {
	select {
	case <-h.calls.None():
	case <-time.After(h.Limits.Answers):
	}
}

// ServeHTTP serves one request and logs it at level debug.
func (h *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	out := newResponse(w, h.Limits)
	defer out.finish()
	if r.ContentLength != 0 {
		// It holds for what the server reads of a refused request, too.
		until := began.Add(h.Limits.Body)
		_ = out.control.SetReadDeadline(until) // a recorder in a test has none
		if r.ContentLength < 0 || r.ContentLength > budget.Small {
			out.unread.Store(true)
			// A copy: the server looks at its own body to see that it closes before it has read all.
			// It waits then, so that the client can read the answer.
			r = r.WithContext(r.Context())
			r.Body = &pacedBody{ReadCloser: r.Body, out: out, patience: h.Limits.Body, until: until}
		}
	}
	logged, session := h.log.Enabled(r.Context(), slog.LevelDebug), ""
	if logged {
		session = wire.Shortened(header(r, wire.SessionHeader)) // it may not be there afterwards
	}
	h.mux.ServeHTTP(out, r)
	if !out.guarded {
		h.waitTurn(r, strangerOf(r)) // before the answer goes out
	}
	if logged {
		out.mu.Lock()
		status := out.status
		out.mu.Unlock()
		h.log.Debug("request", "method", r.Method, "path", loggedPath(r), "status", cmp.Or(status, http.StatusOK),
			"duration_ms", float64(time.Since(began).Microseconds())/1000,
			"session", session, "remote", r.RemoteAddr)
	}
}

// loggedPath returns a request's path for the log, without the parts that may be a secret: those
// that match a wildcard of the pattern.
func loggedPath(r *http.Request) string {
	if strings.Contains(r.Pattern, "{") {
		return r.Pattern
	}
	return r.URL.Path
}

// SessionsOf returns how many sessions and streams each caller has, by its name.
func (h *Front) SessionsOf() map[string]int { return h.sessions.ofCallers() }

// Sessions returns how many sessions and streams are open.
func (h *Front) Sessions() int { return h.sessions.count() }

func (h *Front) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, `{"status":"ok"}`)
}

// ready answers /readyz: 503 while draining, while every call is refused and while
// something is starting. Who may not list all tools gets the status alone (SPEC N2).
func (h *Front) ready(w http.ResponseWriter, r *http.Request) {
	known := h.seesAll(r)
	if h.draining.Load() {
		writeJSON(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
		return
	}
	if status := h.bridge.Refusing(); status != "" {
		writeJSON(w, http.StatusServiceUnavailable, fmt.Sprintf(`{"status":%q}`, status))
		return
	}
	if names := h.bridge.Starting(); len(names) > 0 {
		says := map[string]any{"status": "starting"}
		if known {
			says["waiting_for"] = names
		}
		writeJSON(w, http.StatusServiceUnavailable, string(rawjson.Must(says)))
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
	_, _ = io.WriteString(w, body+"\n") // an error means that the client has left
}

// under returns the response that a handler of the front writes to.
func under(w http.ResponseWriter) *response {
	out, ok := w.(*response)
	if !ok {
		panic(fmt.Sprintf("httpfront: %T between ServeHTTP and its handlers", w))
	}
	return out
}

// workOn waits until a request may be worked on. The caller gives the place back.
func (h *Front) workOn(ctx context.Context, from turns.Owner, body []byte) (*turns.Brief, error) {
	each := bytesAMoment
	if wire.IsBatch(body) {
		each = batchAMoment
	}
	return h.Working.TakeLonger(ctx, from, 1+len(body)/each)
}

// serveSSE serves the transport of 2024-11-05.
func (h *Front) serveSSE(w http.ResponseWriter, r *http.Request) {
	settings := h.settings.Load()
	switch r.Method {
	case http.MethodGet:
		r, leave, full := h.admitStream(r)
		if full != nil {
			full.refuse(w, nil)
			return
		}
		defer leave()
		from := originOf(r, subject(r), hostOf(r), client.LegacySSE)
		h.headersRead(r, true)
		w.Header().Set("X-Accel-Buffering", "no")
		under(w).keepAlive(false)
		h.sse.Serve(w, r, settings.MaxRequest, from, func(message wire.Parts) error {
			if err := under(w).writeAll(event(message)); err != nil {
				return err
			}
			return under(w).FlushError()
		})
	case http.MethodPost:
		by := legacysse.Caller{Name: subject(r), Groups: groupsOf(r)}
		from, known := h.sse.OwnerOf(r, by)
		if !known {
			from = client.OwnerOf(by.Name, "", hostOf(r))
		}
		defer h.waitTurn(r, from) // most are answered at once
		body, account, ok := h.readBody(w, r, sender{owner: from})
		if account == nil {
			account = budget.NewAccount(h.bridge.Requests(), from)
		}
		defer account.End()
		if !ok || !h.waits(w, r, account, body) {
			return
		}
		place, err := h.workOn(r.Context(), from, body)
		if err != nil {
			return // the client has left
		}
		account.Work(place)
		h.sse.Post(w, r, body, account, by) //nolint:contextcheck // a request has the context of its stream
	default:
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, "GET opens a stream, POST sends a message")
	}
}
