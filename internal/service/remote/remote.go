// Package remote connects a capsule to a remote MCP server over Streamable HTTP (SPEC-TOOLS 3.5,
// docs/decisions/0017), by sessions.
//
//	rpc.Conn ─► Send ─► a POST for each message
//	rpc.Conn ◄─ Receive ◄─ the messages of the answers, JSON and SSE, and of the stream
//	                       that is the server's own
//
// It understands only the parts of messages that the transport needs: which message is a request,
// which one is its answer, and what initialize agrees on. States, restarts, lists and names belong
// to the capsule.
//
// Its invariants: every request that was sent is answered, with an error if the server does not
// answer, unless the session ends; Orla never holds more than max_message of a message that a server
// sends; and after the end of a session none of its goroutines and connections remain.
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
	// maxPosts bounds the requests of one caller that the server works on at once; maxOpen includes
	// those that wait. All callers together have twice as many (turns.Shares).
	maxPosts, maxOpen = 256, 4096
	// tellTimeout bounds the sending of a message that has no answer.
	tellTimeout = 30 * time.Second
	// goodbye bounds the DELETE at the end of a session.
	goodbye = 2 * time.Second
	// linger is how long a stream may stay open after the answer.
	linger = time.Second
	// lastWords is how long a session that is over may take to end its requests.
	lastWords = 200 * time.Millisecond
	// maxRefusal bounds how much of an error's body is read.
	maxRefusal = 64 << 10
)

// Options configures sessions, in addition to the manifest.
type Options struct {
	// Client makes the requests. Required.
	Client *outbound.Client
	// Auth makes the credentials for each request. nil for none.
	Auth *auth.Source
	// UserAgent is the User-Agent header.
	UserAgent string
	// Own says that the server is a replica of this Orla. It is told whose each message is (Sign), and with the status 421 it
	// says that it has nothing to do with the session any more, and has done nothing.
	Own bool
	// Sign adds to the headers of a request whose it is. If nil, nothing is added.
	Sign func(http.Header, turns.Owner)
	// Over, if not nil, waits until the server is known to have gone, even if it does not say that, and reports that; false
	// when ctx ends before. The session ends then.
	Over func(ctx context.Context) bool
	// Log receives panics. If nil, they are not logged.
	Log *slog.Logger

	name string // of the McpServer; set by Connect
}

// Connect returns the function for capsule.Options that starts the sessions of a capsule whose
// manifest has a Remote.
func Connect(t manifest.Tool, opts Options) func(context.Context) (capsule.Connection, error) {
	limit := t.Runtime.MaxMessage
	if limit == 0 {
		limit = capsule.DefaultMaxMessage
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler)).With("tool", t.Name)
	opts.name = t.Name
	return func(ctx context.Context) (capsule.Connection, error) {
		s := &session{
			endpoint: t.Runtime.Remote.Endpoint, owner: ownerOf(t.Runtime.Remote.Endpoint), opts: opts, max: int(limit),
			outbox: make(chan message), life: newLife(), shares: newShares(limit), listener: listener{all: pace.Times(allFaster)},
			state: state{open: map[string]*request{}},
		}
		go s.live(context.WithoutCancel(ctx)) // Gone is closed when it ends
		return s, nil
	}
}

// session is one session with the server.
type session struct {
	// Set by Connect.
	endpoint string
	owner    turns.Owner // for what is for no caller, where all servers share something
	opts     Options
	max      int          // largest message, in bytes
	outbox   chan message // from Send and Post to forward

	listener
	life
	shares
	asked questions

	work sync.WaitGroup // all goroutines except live's

	mu sync.Mutex // guards state
	state
}

// listener receives the server's messages. Open and Listen set it before the first message.
type listener struct {
	conn     *rpc.Conn
	logged   func(line []byte, dropped int)
	panicked func(p any)

	receiving sync.Mutex // passes one message at a time
	paces     paces
	all       pace.Shared // of unsolicited messages to all callers
	saying    sync.Mutex  // guards said
	said      limit
}

// life is the state of a session's end.
type life struct {
	over         chan string // receives the reason for the end; the first one counts
	finish, kill chan struct{}
	finishing    sync.Once
	killing      sync.Once
	exiting      sync.Once
	ending       chan struct{} // closed when the session starts ending
	exited, gone chan struct{}
	text         string // the reason; set before exited is closed
}

func newLife() life {
	return life{
		over: make(chan string, 1), finish: make(chan struct{}), kill: make(chan struct{}),
		ending: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
	}
}

// shares bound what a session does at once, and divide it among callers.
type shares struct {
	begun         *turns.Shares // requests without an answer
	posts         *turns.Shares // requests that the server works on
	medium, large *turns.Shares // messages being read that are over small, or over large
	reads         *turns.Room   // their bytes; of all sessions

	tells, untold *turns.Shares // messages without an answer: being sent, and being sent or waiting
	untoldBytes   *turns.Shares // bytes of untold
	allTells      *turns.Shares // messages without an answer that are being sent; of all sessions
	asks          *pace.Shared  // slows down the servers' questions; of all sessions
}

func newShares(maxMessage int64) shares {
	return shares{
		begun: turns.NewShares(2 * maxOpen), posts: turns.NewShares(2 * maxPosts), medium: turns.NewShares(2 * maxMedium), large: turns.NewShares(2 * maxLarge),
		reads: allReads, allTells: allTells, asks: &allAsks,
		tells: turns.NewShares(2 * maxTells), untold: turns.NewShares(2 * maxUntold),
		untoldBytes: turns.NewShares(max(leastUntoldBytes, 4*maxMessage)), // at least enough for the largest message
	}
}

// state is what is known about the server and the session.
type state struct {
	shown     []auth.Credentials // the last credentials that were sent
	id        string             // Mcp-Session-Id; "" if the server gave none
	speaks    string             // MCP-Protocol-Version; "" before initialize
	ended     bool               // the server can take no more requests
	expiring  bool               // the session will end soon because the server has ended it
	lost      string             // why the server cannot be reached; "" while it can
	open      map[string]*request
	params    map[string]*param // which arguments of tools are repeated in headers, by the newest list
	older     map[string]*param // the same, by the list before
	annotated int               // bytes that params counts
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
func (s *session) Expired() bool { return s.text == lostSession || s.text == lostHolder }

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

// Release implements capsule.Connection. It does nothing: a session that has ended uses no
// resources.
func (s *session) Release() {}

// live runs the session until it ends.
func (s *session) live(ctx context.Context) {
	// The last messages, such as the end of the session, get some time after everything else has ended.
	last, endLast := context.WithCancel(ctx)
	defer endLast()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.work.Go(func() {
		defer s.contain()
		s.forward(ctx, last)
	})
	if s.opts.Over != nil {
		s.work.Go(func() {
			defer s.contain()
			if s.opts.Over(ctx) {
				s.move()
			}
		})
	}
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

// turnAway records that the session is over: new requests, and those that were not sent yet, are
// made in the next session.
func (s *session) turnAway() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.exiting.Do(func() { close(s.exited) })
}

// leave ends the session at the server, if there is one.
func (s *session) leave(ctx context.Context) {
	defer s.contain()
	s.mu.Lock()
	needless := s.id == "" || s.ended || s.lost != ""
	s.mu.Unlock()
	if needless {
		return
	}
	// 405 means that clients cannot end sessions; after any other status there is nothing left to do.
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

// exit ends the session. The reason follows "it" in messages.
func (s *session) exit(format string, args ...any) {
	select {
	case s.over <- string(s.clean(fmt.Appendf(nil, format, args...))):
	default: // it is over already
	}
}

// contain makes a panic about a server's message end only the session. It must be deferred.
func (s *session) contain() {
	if p := recover(); p != nil {
		stack := debug.Stack()
		s.opts.Log.Error("panic while handling a message of a server", "panic", string(s.clean(fmt.Append(nil, p))), "stack", string(stack))
		s.exit("made Orla panic; the log has the details")
	}
}

// clean removes from a message of the server the credentials that were sent to it (SPEC-TOOLS 5.3).
func (s *session) clean(text []byte) []byte {
	s.mu.Lock()
	shown := s.shown
	s.mu.Unlock()
	for _, c := range shown {
		text = c.RedactBytes(text)
	}
	return text
}

// show records credentials that are sent to the server; older ones are kept, since answers to older
// requests may contain them. The caller holds s.mu.
func (s *session) show(c auth.Credentials) {
	const few = 4
	if slices.ContainsFunc(s.shown, c.Same) { // known already
		return
	}
	s.shown = append([]auth.Credentials{c}, s.shown[:min(len(s.shown), few-1)]...)
}

// cleaned returns a message without the secrets, and whether it is still valid JSON.
func (s *session) cleaned(text []byte) (clean []byte, whole bool) {
	clean = s.clean(text)
	return clean, &clean[0] == &text[0] || rawjson.Valid(clean) // usually nothing was removed
}

// receive passes a message to the capsule, and returns how many messages in it were not answers.
func (s *session) receive(text []byte) (unasked int) {
	s.receiving.Lock()
	defer s.receiving.Unlock()
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
		}
	}()
	return s.conn.Receive(text)
}

// maxLine bounds a line for the log in bytes.
const maxLine = 64 << 10

// say logs lines, unless there were many recently.
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

// limit allows a few events per minute.
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
