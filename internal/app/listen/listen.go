// Package listen serves HTTP on an address that may change, or on sockets that were
// given, and bounds the connections by who has them.
package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/call/pace"
)

const (
	headerTimeout = 8 * time.Second
	idleTimeout   = 5 * time.Minute
	// closeTimeout is how long connections may take to end once no session
	// holds them any more.
	closeTimeout = 2 * time.Second
	// firstTimeout is how long connections that were accepted may take to ask for
	// something, once no more are.
	firstTimeout = 500 * time.Millisecond
	// spareDescriptors are left for tools and files when connections take all
	// they may.
	spareDescriptors = 512
)

// Server serves HTTP on one address at a time, which may change, or on sockets that
// it was given. Those are served for as long as Orla runs, since whoever holds
// them would keep their clients waiting: another address comes beside them.
type Server struct {
	log    *slog.Logger
	server *http.Server
	first  time.Duration // firstTimeout, but for tests
	conns  *connections  // of maxConnections, but for tests

	mu       sync.Mutex // guards what follows
	stopping bool       // no more is accepted
	address  string     // as configured
	current  net.Listener
	beside   net.Listener // on [::1], with the port of URL; nil before HoldLocalhost
	given    []net.Listener
	instead  string // the address that given stand for; current is nil there
	left     *State // what Give returns; nil before Pause
	serving  sync.WaitGroup
	fresh    sync.WaitGroup // connections on which nothing was asked yet
}

// New makes a server that listens nowhere yet.
func New(handler http.Handler, log *slog.Logger) *Server {
	return &Server{
		log:   log,
		first: firstTimeout,
		conns: newConnections(maxConnections()),
		server: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c, ok := r.Context().Value(connKey{}).(*conn); ok {
					c.serve(w, r, handler)
					return
				}
				handler.ServeHTTP(w, r)
			}),
			ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
			ConnState:                    followed,
			ReadHeaderTimeout:            headerTimeout,
			IdleTimeout:                  idleTimeout,
			MaxHeaderBytes:               maxHeader,
			DisableGeneralOptionsHandler: true, // it would answer OPTIONS * without the handler
			ErrorLog:                     slog.NewLogLogger(httpErrors{log.Handler()}, slog.LevelDebug),
		},
	}
}

// WhenEnded sets a function that is called after each request and when a connection is closed, by any goroutine. It has to return
// at once. WhenEnded must be called before Serve.
func (w *Server) WhenEnded(do func()) { w.conns.ended = do }

// httpErrors gives what net/http says, which comes as a text, as an attribute of
// a record with a constant message. A panic it recovers is an error, all else is
// for debugging.
type httpErrors struct{ slog.Handler }

func (h httpErrors) Enabled(context.Context, slog.Level) bool { return true }

func (h httpErrors) Handle(ctx context.Context, said slog.Record) error {
	r := slog.NewRecord(said.Time, slog.LevelDebug, "the HTTP server says", 0)
	if text, panicked := strings.CutPrefix(said.Message, "http: panic serving "); panicked {
		what, stack, _ := strings.Cut(text, "\n")
		r = slog.NewRecord(said.Time, slog.LevelError, "panic in an HTTP request", 0)
		r.Add("panic", what, "stack", stack)
	} else {
		r.Add("text", said.Message)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// Listen serves on address from now on. The new address is listened on before
// the old one is given up, and connections that are open stay (SPEC H2).
func (w *Server) Listen(ctx context.Context, address string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var next net.Listener
	switch {
	case w.stopping:
		return errors.New("this server is stopping")
	case w.address == address && (w.current != nil || w.given != nil):
		return nil
	case w.instead == address && w.given != nil: // back to what they stand for
	default:
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return listenError(address, err)
		}
		next = w.serve(l)
	}
	for _, old := range []net.Listener{w.current, w.beside} {
		if old != nil {
			_ = old.Close() // it only stops accepting
		}
	}
	w.address, w.current, w.beside = address, next, nil
	return nil
}

// InUse returns an error that is ErrInUse if somebody accepts connections at address now. It connects and
// does not listen, because a process that is started in that moment would hold a listener a while longer.
func InUse(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: 200 * time.Millisecond}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = c.Close()
		if isOwn(c.LocalAddr(), c.RemoteAddr()) {
			return listenError(address, syscall.EADDRINUSE)
		}
	}
	return nil // to listen decides
}

// isOwn reports whether the two ends of a connection are on this machine: an address to listen on may be that of another.
func isOwn(local, remote net.Addr) bool {
	l, lok := local.(*net.TCPAddr)
	r, rok := remote.(*net.TCPAddr)
	return lok && rok && (r.IP.IsLoopback() || l.IP.Equal(r.IP))
}

// Accept serves sockets that were given, in place of the configured address.
func (w *Server) Accept(address string, given []net.Listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.address, w.instead = address, address
	for _, l := range given {
		w.given = append(w.given, w.serve(l))
	}
}

// serve answers the connections of l until what it returns is closed: l itself
// does not end a wait for room.
func (w *Server) serve(l net.Listener) net.Listener {
	served := &listener{Listener: l, all: w.conns, fresh: &w.fresh}
	w.serving.Go(func() {
		err := w.server.Serve(served)
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			w.log.Error("the HTTP server ended", "address", l.Addr().String(), "err", err)
		}
	})
	return served
}

// URL is where clients reach the server.
func (w *Server) URL() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.current
	if l == nil {
		l = w.given[0]
	}
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return "http://" + l.Addr().String() + "/mcp"
}

// Shutdown stops accepting and waits for open requests until ctx ends, then
// cuts them off.
func (w *Server) Shutdown(ctx context.Context) {
	w.answerFresh(ctx)
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		_ = w.server.Close() // what is left had its time
	}
}

// answerFresh stops accepting, and waits until something was asked on each
// connection that was accepted: a server that is shutting down drops the first
// request of one without a word, and its client takes that for a fault. Those that
// were not accepted wait for the next Orla, where systemd listens (SPEC K1).
func (w *Server) answerFresh(ctx context.Context) {
	w.mu.Lock()
	w.stopping = true
	for _, l := range w.listenersLocked() {
		_ = l.Close() // it only stops accepting
	}
	w.mu.Unlock()
	w.serving.Wait()                          // all that is accepted is counted then
	pace.Await(ctx.Done(), &w.fresh, w.first) // shutdown closes what is left
}

// ErrInUse says why an address cannot be listened on.
var ErrInUse = errors.New("is in use by another program")

// listenError says why an address cannot be listened on, and what helps.
func listenError(address string, err error) error {
	f := &exit.Error{Code: exit.Failed, Err: fmt.Errorf("listen on %s: %w", address, err)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.Err = fmt.Errorf("%s %w", address, ErrInUse)
		f.Hint = "end that program, or take another port with --port"
	case errors.Is(err, syscall.EACCES):
		f.Err = fmt.Errorf("%s may not be listened on by this user", address)
		f.Hint = "take a port above 1023 with --port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		f.Err = fmt.Errorf("%s is not an address of this machine", address)
	}
	return f
}

// maxConnections is as many as the limit of descriptors has room for beside
// tools; more wait in the kernel's queue.
func maxConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return spareDescriptors
	}
	const enough = 1 << 20
	n := int(min(limit.Cur, enough))
	return max(n-spareDescriptors, n/2)
}
