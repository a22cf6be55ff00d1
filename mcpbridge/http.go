package mcpbridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits that no setting moves.
const (
	// bodyTimeout is how long a client may take to send a request's body.
	bodyTimeout = 30 * time.Second
	// writeTimeout is how long one write to a client may take.
	writeTimeout = 30 * time.Second
	// DefaultMaxRequest bounds a request's body in bytes (SPEC G7).
	DefaultMaxRequest = 16 << 20
	// DefaultSessionTimeout is after how long an idle session expires. It is
	// long, because few clients begin a new session by themselves; a session
	// whose event stream is open is not idle.
	DefaultSessionTimeout = 12 * time.Hour
	// DefaultMaxSessions bounds the sessions at one time. Past it, the one
	// that was idle longest makes room.
	DefaultMaxSessions = 10_000
)

// HTTPSettings is what may change while the front is serving.
type HTTPSettings struct {
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
	// MaxRequest bounds a request's body in bytes. If zero, DefaultMaxRequest.
	MaxRequest int64
	// SessionTimeout is after how long an idle session expires. If zero,
	// DefaultSessionTimeout.
	SessionTimeout time.Duration
	// MaxSessions bounds the sessions. If zero, DefaultMaxSessions.
	MaxSessions int
}

// HTTP is the HTTP front of a Bridge: /mcp, /sse, /healthz and /readyz. It may
// serve any number of requests at once, and Configure may be called meanwhile.
type HTTP struct {
	bridge   *Bridge
	log      *slog.Logger
	mux      *http.ServeMux
	settings atomic.Pointer[HTTPSettings]
	sessions *sessions
	sse      *sse
	stateful http.Handler // serves the eras with sessions
	newest   http.Handler // serves the stateless era, and calls without a session
	draining atomic.Bool
}

// HTTP returns the bridge's HTTP front.
func (b *Bridge) HTTP(settings HTTPSettings) *HTTP {
	h := &HTTP{bridge: b, log: b.log, mux: http.NewServeMux(), sse: newSSE(b)}
	h.sessions = newSessions(b.server)
	h.Configure(settings)
	server := func(*http.Request) *mcp.Server { return b.server }
	// The front checks Host and bounds bodies itself, for every path alike.
	options := mcp.StreamableHTTPOptions{
		DisableLocalhostProtection: true,
		MaxRequestBodyBytes:        -1,
		Logger:                     slog.New(quietHandler{b.log.Handler()}),
	}
	h.stateful = mcp.NewStreamableHTTPHandler(server, &options)
	options.Stateless = true
	options.PropagateRequestCancellation = true
	h.newest = mcp.NewStreamableHTTPHandler(server, &options)

	h.mux.HandleFunc("GET /healthz", h.health)
	h.mux.HandleFunc("GET /readyz", h.ready)
	h.mux.Handle("/mcp", h.guarded(http.HandlerFunc(h.serveMCP)))
	h.mux.Handle("/sse", h.guarded(http.HandlerFunc(h.serveSSE)))
	return h
}

// Configure makes settings those of every request from now on.
func (h *HTTP) Configure(settings HTTPSettings) {
	if settings.MaxRequest == 0 {
		settings.MaxRequest = DefaultMaxRequest
	}
	if settings.SessionTimeout == 0 {
		settings.SessionTimeout = DefaultSessionTimeout
	}
	if settings.MaxSessions == 0 {
		settings.MaxSessions = DefaultMaxSessions
	}
	h.settings.Store(&settings)
}

// String names the front in logs.
func (h *HTTP) String() string { return "http sessions" }

// Serve expires idle sessions until ctx ends.
func (h *HTTP) Serve(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.sessions.expire(h.settings.Load().SessionTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Drain makes /readyz say that no new work is wanted (SPEC G6).
func (h *HTTP) Drain() { h.draining.Store(true) }

// CloseSessions ends every session and stream, so that a server's Shutdown
// does not wait for them.
func (h *HTTP) CloseSessions() {
	h.sse.closeAll()
	h.sessions.closeAll()
}

// ServeHTTP serves one request and writes a line about it at debug.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	out := &response{ResponseWriter: w, control: http.NewResponseController(w)}
	defer out.finish()
	h.mux.ServeHTTP(out, r)
	if h.log.Enabled(r.Context(), slog.LevelDebug) {
		h.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", out.status,
			"duration_ms", float64(time.Since(began).Microseconds())/1000,
			"session", shortened(r.Header.Get(sessionHeader)), "remote", r.RemoteAddr)
	}
}

func (h *HTTP) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, `{"status":"ok"}`)
}

// ready says whether new work is wanted: 503 while draining.
func (h *HTTP) ready(w http.ResponseWriter, _ *http.Request) {
	if h.draining.Load() {
		writeJSON(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
		return
	}
	writeJSON(w, http.StatusOK, fmt.Sprintf(`{"status":"ready","tools":%d}`, len(h.bridge.catalog.Catalog().Tools)))
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body+"\n") // the client's leaving is its own business
}

// serveMCP serves Streamable HTTP in every era.
func (h *HTTP) serveMCP(w http.ResponseWriter, r *http.Request) {
	settings := h.settings.Load()
	id := r.Header.Get(sessionHeader)
	if r.Method != http.MethodPost {
		if r.Method == http.MethodGet {
			w.Header().Set("X-Accel-Buffering", "no")
			keepAlive(w)
		}
		defer h.sessions.use(id)()
		h.stateful.ServeHTTP(w, r)
		return
	}
	body, ok := h.readBody(w, r, settings.MaxRequest)
	if !ok {
		return
	}
	handler := h.route(r, body)
	if handler == h.newest {
		handler.ServeHTTP(&explainer{ResponseWriter: w, body: body, stateless: true}, r)
		return
	}
	if id == "" {
		h.sessions.makeRoom(settings.MaxSessions)
	}
	done := h.sessions.use(id)
	handler.ServeHTTP(&explainer{ResponseWriter: w, body: body}, r)
	done()
	if id == "" {
		h.sessions.use(w.Header().Get(sessionHeader))()
	}
}

// serveSSE serves the transport of 2024-11-05.
func (h *HTTP) serveSSE(w http.ResponseWriter, r *http.Request) {
	settings := h.settings.Load()
	switch r.Method {
	case http.MethodGet:
		w.Header().Set("X-Accel-Buffering", "no")
		keepAlive(w)
		h.sse.stream(w, r, settings.MaxRequest, subject(r))
	case http.MethodPost:
		if body, ok := h.readBody(w, r, settings.MaxRequest); ok {
			h.sse.post(w, r, body, subject(r))
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, "GET opens a stream, POST sends a message")
	}
}

// subject is the authenticated caller of a request, "" without authentication.
func subject(r *http.Request) string {
	if info := auth.TokenInfoFromContext(r.Context()); info != nil {
		return info.UserID
	}
	return ""
}

// readBody reads a request's body within its limits and puts it back for the
// SDK. It answers by itself when that does not work.
func (h *HTTP) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, bool) {
	if r.ContentLength > limit {
		tooLarge(w, limit)
		return nil, false
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a recorder in a test has none
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case err == nil:
	case errors.As(err, new(*http.MaxBytesError)):
		tooLarge(w, limit)
		return nil, false
	default:
		h.log.Debug("read a request", "err", err, "bytes", n)
		refuse(w, http.StatusRequestTimeout, "the request's body did not arrive")
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(buf.Bytes()))
	return buf.Bytes(), true
}

func tooLarge(w http.ResponseWriter, limit int64) {
	// The rest of the body is not read: the connection has no further use.
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is over max_request (%d bytes)", limit))
}
