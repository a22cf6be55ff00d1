// Package remote speaks with an MCP server over Streamable HTTP, in the place
// of a process of a capsule (SPEC-TOOLS 3.5, docs/decisions/0017):
//
//	stdin  ─► a POST for each line
//	stdout ◄─ the messages of the answers, JSON and SSE, and of the stream that
//	          is the server's own
//	stderr ◄─ what is wrong with the session, for the log
//
// It knows nothing of what the messages mean but what the transport needs: which
// is a request, which is its answer, and what initialize agrees on. States,
// restarts, lists and names are the capsule's.
//
// Its invariants: a request that was written is answered, with an error where
// the server does not, or the session is over; what a server sends is never
// held beyond max_message, however much it is; and of a session that is gone no
// goroutine and no connection in use is left.
package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/auth"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/linerpc"
	"github.com/orla-project/orla/internal/outbound"
	"github.com/orla-project/orla/internal/turns"
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
	// lastLook is how long a session that is over looks for requests that were
	// written before anybody could know.
	lastLook = 30 * time.Millisecond
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

// Start returns what starts the sessions of a capsule whose manifest has a
// Remote, for capsule.Options.
func Start(t manifest.Tool, opts Options) func(context.Context, launch.Spec) (capsule.Process, error) {
	limit := t.Runtime.MaxMessage
	if limit == 0 {
		limit = capsule.DefaultMaxMessage
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler)).With("tool", t.Name)
	return func(ctx context.Context, _ launch.Spec) (capsule.Process, error) {
		s := &session{
			endpoint: t.Runtime.Remote.Endpoint, opts: opts, max: int(limit),
			over: make(chan string, 1), finish: make(chan struct{}), kill: make(chan struct{}),
			ending: make(chan struct{}), exited: make(chan struct{}), gone: make(chan struct{}),
			begun: turns.NewShares(2 * maxOpen), posts: turns.NewShares(2 * maxPosts), large: turns.NewShares(2 * maxLarge),
			tells: turns.NewShares(2 * maxTells), untold: turns.NewShares(2 * maxUntold),
			untoldBytes: turns.NewShares(max(leastUntoldBytes, 4*limit)), // a session has room for the largest
			open:        map[string]*request{},
		}
		s.stdin, s.in = net.Pipe()
		s.stdout, s.out = net.Pipe()
		s.stderr, s.err = net.Pipe()
		go s.live(context.WithoutCancel(ctx)) // Gone tells that it has ended
		return s, nil
	}
}

// session is one of them.
type session struct {
	// Set by Start.
	endpoint              string
	opts                  Options
	max                   int      // bytes of a message
	stdin, stdout, stderr net.Conn // the capsule's ends
	in, out, err          net.Conn // ours

	over         chan string // receives why it is over; the first one counts
	finish, kill chan struct{}
	finishing    sync.Once
	killing      sync.Once
	exiting      sync.Once
	ending       chan struct{} // closed when it is being ended
	exited, gone chan struct{}
	text         string // set before exited is closed

	work  sync.WaitGroup // all goroutines but live's
	begun *turns.Shares  // of requests without an answer
	posts *turns.Shares  // of requests that the server works on
	large *turns.Shares  // of messages that are being read and large

	tells, untold *turns.Shares // of messages that are told, and of those that are to be
	untoldBytes   *turns.Shares // of the latter
	asked         questions

	writing sync.Mutex // one line to out at a time
	saying  sync.Mutex // the same of err; guards said
	said    limit

	mu       sync.Mutex         // guards the fields that follow
	shown    []auth.Credentials // to the server, the last few
	id       string             // Mcp-Session-Id; "" if the server gave none
	speaks   string             // MCP-Protocol-Version; "" before initialize
	ended    bool               // nothing can be asked of the server any more
	expiring bool               // the session ends for that, soon
	lost     string             // why the server cannot be reached; "" while it can
	open     map[string]*request
	find     func(id int64) (turns.Line, bool) // see capsule.Sharer; nil where nobody knows
	params   map[string]*param                 // which arguments of tools stand in headers as well, by the list that was read last
	older    map[string]*param                 // the same by the one before
}

// Pid implements capsule.Process: there is none.
func (s *session) Pid() int { return 0 }

// Streams implements capsule.Process.
func (s *session) Streams() (stdin, stdout, stderr linerpc.Stream) {
	return s.stdin, s.stdout, s.stderr
}

// Exited implements capsule.Process.
func (s *session) Exited() <-chan struct{} { return s.exited }

// Gone implements capsule.Process.
func (s *session) Gone() <-chan struct{} { return s.gone }

// Share implements capsule.Sharer.
func (s *session) Share(whose func(id int64) (line turns.Line, waits bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.find = whose
}

// whose returns whose share a request takes, and whether anybody waits for its answer.
func (s *session) whose(id json.RawMessage) (line turns.Line, waits bool) {
	s.mu.Lock()
	find := s.find
	s.mu.Unlock()
	n, err := strconv.ParseInt(string(id), 10, 64)
	if find == nil || err != nil {
		return turns.Line{}, true
	}
	return find(n)
}

// Held implements capsule.Process: nothing is bounded elsewhere.
func (s *session) Held() launch.Held { return launch.Held{} }

// ExitText implements capsule.Process.
func (s *session) ExitText() string { return s.text }

// Expired implements capsule.Expirer.
func (s *session) Expired() bool { return s.text == lostSession }

// Finish implements capsule.Process. What is to be answered was answered, or is
// wanted no more.
func (s *session) Finish(time.Duration) { s.finishing.Do(func() { close(s.finish) }) }

// Kill implements capsule.Process.
func (s *session) Kill() { s.killing.Do(func() { close(s.kill) }) }

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
		s.read(ctx, last)
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
	_ = s.in.Close() // it has no error, as the others below
	soon := time.Now().Add(goodbye)
	_ = s.out.SetWriteDeadline(soon) // who writes is heard, or there is nobody to hear
	_ = s.err.SetWriteDeadline(soon)

	done := make(chan struct{})
	var bound sync.WaitGroup
	bound.Go(func() {
		timer := time.NewTimer(goodbye)
		defer timer.Stop()
		select {
		case <-timer.C:
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
	_, _ = s.out.Close(), s.err.Close()
	close(s.gone)
}

// turnAway says that the session is over, and for a moment answers those who
// could not know: what they asked for is asked of the next one.
func (s *session) turnAway() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.exiting.Do(func() { close(s.exited) })
	timer := time.NewTimer(lastLook)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.finish:
	case <-s.kill:
	}
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

// pass hands a message to the capsule. line is the caller's no more.
func (s *session) pass(line []byte) error {
	line = s.clean(line)
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.out.Write(append(line, '\n'))
	return err
}

// say writes a line for the log, unless there were many of late.
func (s *session) say(format string, args ...any) {
	s.saying.Lock()
	defer s.saying.Unlock()
	if !s.said.allow(time.Now()) {
		return
	}
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	_, _ = s.err.Write(append(s.clean([]byte(text)), '\n')) // who does not listen does not want to know
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

// wait waits, and reports false when ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// errOver is why a request was not passed on by a session that is over.
var errOver = errors.New("the session is over")
