// Package remote is the connection of a capsule with an MCP server that is far away,
// over Streamable HTTP (SPEC-TOOLS 3.5, docs/decisions/0017): a session.
//
//	rpc.Conn ─► Send ─► a POST for each message
//	rpc.Conn ◄─ Receive ◄─ the messages of the answers, JSON and SSE, and of the stream
//	                       that is the server's own
//
// It knows nothing of what the messages mean but what the transport needs: which
// is a request, which is its answer, and what initialize agrees on. States,
// restarts, lists and names are the capsule's.
//
// Its invariants: a request that was sent is answered, with an error where
// the server does not, or the session is over; what a server sends is never
// held beyond max_message, however much it is; and of a session that is gone no
// goroutine and no connection in use is left.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxPosts bounds the requests of one caller that the server works on at once, and
	// maxOpen those that wait for it as well. What all may have together is twice as
	// much (turns.Shares).
	maxPosts, maxOpen = 256, 4096
	// tellTimeout bounds a message that has no answer.
	tellTimeout = 30 * time.Second
	// goodbye bounds the end of a session.
	goodbye = 2 * time.Second
	// linger is how long a stream may stay open behind the answer that it is for.
	linger = time.Second
	// lastWords is how long a session that is over may take to end its requests.
	lastWords = 200 * time.Millisecond
	// maxRefusal bounds what is read of an answer that is no success.
	maxRefusal = 64 << 10
)

// Options is what a session needs beside the manifest.
type Options struct {
	// Client makes the requests. Required.
	Client *outbound.Client
	// Auth gives the credentials, for each request afresh. nil for none.
	Auth *auth.Source
	// UserAgent is what the requests say of who makes them.
	UserAgent string
	// Log takes panics. If nil, nothing does.
	Log *slog.Logger
}

// Connect returns what begins the sessions of a capsule whose manifest has a
// Remote, for capsule.Options.
func Connect(t manifest.Tool, opts Options) func(context.Context) (capsule.Connection, error) {
	limit := t.Runtime.MaxMessage
	if limit == 0 {
		limit = capsule.DefaultMaxMessage
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler)).With("tool", t.Name)
	return func(ctx context.Context) (capsule.Connection, error) {
		s := &session{
			endpoint: t.Runtime.Remote.Endpoint, opts: opts, max: int(limit),
			outbox: make(chan message), life: newLife(), shares: newShares(limit),
			state: state{open: map[string]*request{}},
		}
		go s.live(context.WithoutCancel(ctx)) // Gone tells that it has ended
		return s, nil
	}
}

// session is one of them.
type session struct {
	// Set by Connect.
	endpoint string
	opts     Options
	max      int          // bytes of a message
	outbox   chan message // to forward, from Send and Post

	listener
	life
	shares
	asked questions

	work sync.WaitGroup // all goroutines but live's

	mu sync.Mutex // guards state
	state
}

// listener is who hears what the server says. It is set by Open and Listen, before there is a message.
type listener struct {
	conn     *rpc.Conn
	logged   func(line []byte, dropped int)
	panicked func(p any)

	receiving sync.Mutex // one message at a time; guards pauses
	pauses    pace.Pace  // of messages that nobody has asked for
	saying    sync.Mutex // guards said
	said      limit
}

// life is how a session ends.
type life struct {
	over         chan string // receives why it is over; the first one counts
	finish, kill chan struct{}
	finishing    sync.Once
	killing      sync.Once
	exiting      sync.Once
	ending       chan struct{} // closed when it is being ended
	exited, gone chan struct{}
	text         string // set before exited is closed
}

func newLife() life {
	return life{
		over: make(chan string, 1), finish: make(chan struct{}), kill: make(chan struct{}),
		ending: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
	}
}

// shares bound what a session does at once, and share it by caller.
type shares struct {
	begun         *turns.Shares // of requests without an answer
	posts         *turns.Shares // of requests that the server works on
	medium, large *turns.Shares // of messages that are being read and larger than small, or than large

	tells, untold *turns.Shares // of messages that are told, and of those that are to be
	untoldBytes   *turns.Shares // of the latter
}

func newShares(maxMessage int64) shares {
	return shares{
		begun: turns.NewShares(2 * maxOpen), posts: turns.NewShares(2 * maxPosts), medium: turns.NewShares(2 * maxMedium), large: turns.NewShares(2 * maxLarge),
		tells: turns.NewShares(2 * maxTells), untold: turns.NewShares(2 * maxUntold),
		untoldBytes: turns.NewShares(max(leastUntoldBytes, 4*maxMessage)), // a session has room for the largest
	}
}

// state is what is known of the server and of the session.
type state struct {
	shown     []auth.Credentials // to the server, the last few
	id        string             // Mcp-Session-Id; "" if the server gave none
	speaks    string             // MCP-Protocol-Version; "" before initialize
	ended     bool               // nothing can be asked of the server any more
	expiring  bool               // the session ends for that, soon
	lost      string             // why the server cannot be reached; "" while it can
	open      map[string]*request
	params    map[string]*param // which arguments of tools stand in headers as well, by the list that was read last
	older     map[string]*param // the same by the one before
	annotated int               // what params counts, in bytes
}

var (
	_ capsule.Connection = (*session)(nil)
	_ capsule.Expirer    = (*session)(nil)
)

// Open implements capsule.Connection.
func (s *session) Open(opts rpc.Options) *rpc.Conn {
	s.conn = rpc.New(s, opts)
	return s.conn
}

// Listen implements capsule.Connection.
func (s *session) Listen(logged func(line []byte, dropped int), panicked func(p any)) {
	s.logged, s.panicked = logged, panicked
}

// Exited implements capsule.Connection.
func (s *session) Exited() <-chan struct{} { return s.exited }

// ExitText implements capsule.Connection.
func (s *session) ExitText() string { return s.text }

// Expired implements capsule.Expirer.
func (s *session) Expired() bool { return s.text == lostSession }

// Heard implements capsule.Connection.
func (s *session) Heard() <-chan struct{} { return s.gone }

// AwaitLast implements capsule.Connection.
func (s *session) AwaitLast() {
	select {
	case <-s.gone:
	case <-time.After(lastWords):
	}
}

// Finish implements capsule.Connection.
func (s *session) Finish(time.Duration) { s.finishing.Do(func() { close(s.finish) }) }

// Kill implements capsule.Connection.
func (s *session) Kill() { s.killing.Do(func() { close(s.kill) }) }

// Gone implements capsule.Connection.
func (s *session) Gone() <-chan struct{} { return s.gone }

// Release implements capsule.Connection: a session that is gone has nothing.
func (s *session) Release() {}

// live owns the session's goroutines, from its beginning to its end.
func (s *session) live(ctx context.Context) {
	// What the server is told, last of all that the session is over, has a moment
	// when all else has ended.
	last, endLast := context.WithCancel(ctx)
	defer endLast()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.work.Go(func() {
		defer s.contain()
		s.forward(ctx, last)
	})
	killed := false
	select {
	case s.text = <-s.over:
		s.turnAway()
	case <-s.finish:
		s.text = "was closed"
	case <-s.kill:
		s.text, killed = "was closed at once", true
	}
	close(s.ending)
	if killed {
		cancel()
	} else {
		s.abandon(last, cancel)
	}

	done := make(chan struct{})
	var bound sync.WaitGroup
	bound.Go(func() {
		select {
		case <-time.After(goodbye):
		case <-s.kill:
		case <-done:
		}
		endLast()
	})
	s.work.Wait()
	if !killed {
		s.leave(last)
	}
	close(done)
	bound.Wait()
	s.exiting.Do(func() { close(s.exited) })
	close(s.gone)
}

// turnAway says that the session is over: what is asked of it from now on, and what was
// not sent yet, is asked of the next one.
func (s *session) turnAway() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.exiting.Do(func() { close(s.exited) })
}

// leave tells the server that the session is over, if there is one.
func (s *session) leave(ctx context.Context) {
	defer s.contain()
	s.mu.Lock()
	needless := s.id == "" || s.ended || s.lost != ""
	s.mu.Unlock()
	if needless {
		return
	}
	// 405 says that the server does not let clients end sessions; whatever else
	// it says, there is nothing more to be done.
	_ = s.opts.Auth.Do(ctx, func(c auth.Credentials) error {
		req, err := s.request(ctx, http.MethodDelete, nil, c)
		if err != nil {
			return err
		}
		resp, err := s.opts.Client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// exit ends the session, for a reason that goes on after "it".
func (s *session) exit(format string, args ...any) {
	select {
	case s.over <- string(s.clean(fmt.Appendf(nil, format, args...))):
	default: // it is over already
	}
}

// contain keeps a panic over what a server said from ending more than the
// session. It is deferred.
func (s *session) contain() {
	if p := recover(); p != nil {
		stack := debug.Stack()
		s.opts.Log.Error("panic over what a server said", "panic", string(s.clean(fmt.Append(nil, p))), "stack", string(stack))
		s.exit("made Orla panic; the log has the details")
	}
}

// clean takes out of what the server says what it was shown (SPEC-TOOLS 5.3).
func (s *session) clean(text []byte) []byte {
	s.mu.Lock()
	shown := s.shown
	s.mu.Unlock()
	for _, c := range shown {
		text = c.RedactBytes(text)
	}
	return text
}

// show notes what the server is shown: answers to what it was shown before may
// still come. The caller holds s.mu.
func (s *session) show(c auth.Credentials) {
	const few = 4
	if slices.ContainsFunc(s.shown, c.Same) { // which knows already what to look for
		return
	}
	s.shown = append([]auth.Credentials{c}, s.shown[:min(len(s.shown), few-1)]...)
}

// pass hands a message to the capsule, and reports whether it still is one without the
// secrets in it. text is the caller's no more.
func (s *session) pass(text []byte) (whole bool) {
	clean := s.clean(text)
	whole = &clean[0] == &text[0] || rawjson.Valid(clean) // as a rule there was nothing to take out
	text = clean
	s.receiving.Lock()
	defer s.receiving.Unlock()
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
		}
	}()
	if unasked := s.conn.Receive(text); unasked > 0 {
		s.pauses.Wait(s.conn.Over(), unasked, len(text))
	}
	return whole
}

// maxLine bounds a line for the log in bytes.
const maxLine = 64 << 10

// say writes lines for the log, unless there were many of late.
func (s *session) say(format string, args ...any) {
	s.saying.Lock()
	defer s.saying.Unlock()
	if !s.said.allow(time.Now()) {
		return
	}
	text := s.clean([]byte(strings.TrimRight(fmt.Sprintf(format, args...), "\n")))
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		most := min(len(line), maxLine)
		s.logged(line[:most:most], len(line)-most)
	}
}

// limit lets a few things pass in each minute.
type limit struct {
	since time.Time
	n     int
}

func (l *limit) allow(now time.Time) bool {
	const window, most = time.Minute, 10
	if now.Sub(l.since) >= window {
		*l = limit{since: now}
	}
	l.n++
	return l.n <= most
}

// errOver is why a request was not sent by a session that is over: it is made of the next
// one.
var errOver error = overError{}

type overError struct{}

func (overError) Error() string { return "the session is over" }

func (overError) Is(target error) bool { return target == rpc.ErrNotSent }
