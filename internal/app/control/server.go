package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/app/control/looks"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/call/turns"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 64 << 10
	// closeTimeout is how long answers that are on their way may take at the end.
	closeTimeout = 2 * time.Second
	// tryAgain is how long after a try that failed the socket is tried for again.
	tryAgain = 2 * time.Second
	// maxClients is how many connections there may be at once; more wait in the kernel's queue.
	maxClients = 256
	// maxVerifying bounds how many callers have the audit log checked at once.
	maxVerifying = 8
)

// Options configures a Server.
type Options struct {
	// Backend is required.
	Backend Backend
	// Others are requests that other packages answer, also for the page of the console.
	Others []Route
	// MaxRequest bounds the body of a request in bytes. Required.
	MaxRequest int64
	// Before is what the program before has given; nil for nothing.
	Before *unixsocket.State
	// Log is required.
	Log *slog.Logger
}

// Server serves a Backend on the socket that Point says. Its methods may be
// called from any goroutine, but Serve only by one at a time.
type Server struct {
	opts Options
	wake chan struct{} // holds one request to look at want

	looks     *looks.Looks // at the tools, for the streams of watch
	verifying *turns.Queue // of who has the audit log checked
	questions questions

	mu      sync.Mutex // guards the fields that follow
	want    wanted
	untried []chan struct{}   // one for each Point that Serve has not seen to
	at      string            // the socket that is served; "" for none
	leaving bool              // see Leave
	given   *unixsocket.State // see Given

	before *unixsocket.Socket // owned by Serve
}

// wanted is where to serve, and who does.
type wanted struct {
	location unixsocket.Location
	owner    unixsocket.Owner
}

// New returns a Server that has no socket yet.
func New(opts Options) *Server {
	before, err := opts.Before.Take()
	if err != nil {
		opts.Log.Warn("the control socket is not kept", "err", err)
	}
	return &Server{opts: opts, wake: make(chan struct{}, 1), before: before, looks: looks.New(tools{opts.Backend}), verifying: turns.NewCapped(maxVerifying, 1), questions: questions{places: turns.NewShares(maxQuestions)}}
}

// Point sets the socket to serve on. If that fails, the server tries again from time to time. tried is
// closed after the first attempt.
func (s *Server) Point(location unixsocket.Location, owner unixsocket.Owner) (tried <-chan struct{}) {
	done := make(chan struct{})
	s.mu.Lock()
	s.want = wanted{location, owner}
	s.untried = append(s.untried, done)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // whoever wakes will see this one
	}
	return done
}

// Socket is the socket that is being served; "" for none.
func (s *Server) Socket() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// String names the server in logs.
func (s *Server) String() string { return "control" }

// Serve serves until ctx ends, and returns when every request has ended. The
// socket and its lock are gone then.
func (s *Server) Serve(ctx context.Context) error {
	web := &http.Server{
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // streams end by it
		ConnContext:       func(ctx context.Context, conn net.Conn) context.Context { return withPeer(ctx, conn) },
	}
	p := &presence{server: s, web: web, places: make(chan struct{}, maxClients)}
	p.requests.handler, p.requests.log = s.handler(socket), s.opts.Log
	web.Handler = &p.requests
	for {
		want, untried := s.wanted()
		p.move(ctx, want)
		for _, tried := range untried {
			close(tried)
		}
		var again <-chan time.Time
		if p.lacks(want) {
			again = time.After(tryAgain)
		}
		select {
		case <-s.wake:
		case <-again:
		case <-ctx.Done():
			p.leave(context.WithoutCancel(ctx))
			return ctx.Err()
		}
	}
}

// wanted is what the last Point said, and who waits for it to be tried.
func (s *Server) wanted() (wanted, []chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	untried := s.untried
	s.untried = nil
	return s.want, untried
}

func (s *Server) atSocket(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = path
}

// presence is where a Serve serves at the moment. Only its goroutine uses it.
type presence struct {
	server  *Server
	web     *http.Server
	places  chan struct{}      // holds one for each connection
	socket  *unixsocket.Socket // nil for none
	warned  string             // what the log was last told of a socket that cannot be had
	serving sync.WaitGroup

	requests requests
}

// move makes want the socket that is served. If that cannot be, what is served
// stays as it is. Connections that are open stay in any case.
func (p *presence) move(ctx context.Context, want wanted) {
	path := want.location.Socket
	switch {
	case p.socket != nil && path == p.socket.Path && p.socket.Intact():
		p.socket.Sign(want.owner)
		return
	case path == "":
		p.drop()
		return
	case p.socket != nil && path == p.socket.Path:
		p.drop() // somebody has removed its files
	}
	next, err := p.server.obtain(ctx, want)
	if err != nil {
		p.tell(path, err)
		return
	}
	p.drop()
	p.warned, p.socket = "", next
	p.server.atSocket(path)
	p.server.opts.Log.Debug("control socket", "socket", path)
	admitted := &doorman{Listener: next.Listener, places: p.places, log: p.server.opts.Log, closed: make(chan struct{})}
	p.serving.Go(func() {
		if err := p.web.Serve(admitted); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			p.server.opts.Log.Error("the control socket ended", "socket", path, "err", err)
		}
	})
	next.Stop = admitted.Close
}

// lacks reports whether what is wanted could not be had.
func (p *presence) lacks(want wanted) bool {
	path := want.location.Socket
	return path != "" && (p.socket == nil || p.socket.Path != path)
}

// tell logs why a socket cannot be served, if that is new.
func (p *presence) tell(path string, err error) {
	text := path + ": " + err.Error()
	if text == p.warned {
		return
	}
	p.warned = text
	if taken, ok := errors.AsType[*unixsocket.TakenError](err); ok {
		p.server.opts.Log.Warn("another Orla serves this folder and has its control socket; this one runs without a control socket until the other ends",
			"pid", taken.Owner.Pid, "url", taken.Owner.URL, "socket", path)
		return
	}
	p.server.opts.Log.Warn("no control socket; orla status and the like cannot reach this Orla",
		"socket", path, "err", err, "hint", "name another with --socket, or none")
}

// drop gives up the socket that is held, if there is one.
func (p *presence) drop() {
	if p.socket == nil {
		return
	}
	p.socket.Release()
	p.socket = nil
	p.server.atSocket("")
}

// leave gives up the socket, and returns when all requests have ended.
func (p *presence) leave(ctx context.Context) {
	p.give()
	p.drop()
	bounded, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	if err := p.web.Shutdown(bounded); err != nil {
		_ = p.web.Close() // what is left had its time
	}
	p.serving.Wait()
	p.requests.wait()
}

// requests counts the requests that are being answered, which net/http does not report after it has closed
// their connections. A panic in a request fails only that one.
type requests struct {
	handler http.Handler
	log     *slog.Logger

	mu        sync.Mutex // guards over, and held while answering grows
	over      bool
	answering sync.WaitGroup
}

func (r *requests) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.enter() {
		refuse(w, &Error{Code: CodeStopping, Message: "Orla is stopping"})
		return
	}
	defer r.answering.Done()
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("panic in a request", "method", req.Method, "path", req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			refuse(w, &Error{Code: CodeInternal, Message: "the request failed inside Orla; its log has the details"})
		}
	}()
	r.handler.ServeHTTP(w, req)
}

func (r *requests) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.answering.Add(1)
	}
	return !r.over
}

// wait begins no further request, and returns when all have been answered.
func (r *requests) wait() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.answering.Wait()
}

// doorman lets in whom the socket is for, and so many at once.
type doorman struct {
	net.Listener
	places chan struct{}
	log    *slog.Logger
	once   sync.Once
	closed chan struct{}
}

// Accept returns the next connection of Orla's own user or root. The socket's
// mode keeps out others already; this holds where modes do not.
func (d *doorman) Accept() (net.Conn, error) {
	select {
	case d.places <- struct{}{}:
	case <-d.closed:
		return nil, net.ErrClosed
	}
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			<-d.places
			return nil, err
		}
		uid, err := unixsocket.Enter(conn)
		if err != nil {
			d.log.Warn("refused a process of another user at the control socket", "err", err)
			_ = conn.Close()
			continue
		}
		return &guest{Conn: conn, uid: uid, leave: sync.OnceFunc(func() { <-d.places })}, nil
	}
}

// Close stops letting in. Who is in may stay.
func (d *doorman) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// guest is a connection that gives back its place.
type guest struct {
	net.Conn
	uid   int // of the process at the other end
	leave func()
}

func (g *guest) Close() error {
	err := g.Conn.Close()
	g.leave()
	return err
}
