package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
)

// The headers of the transport.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerLastID  = "Last-Event-Id"
)

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// request is one that was written and has no answer yet.
type request struct {
	message
	cancel context.CancelFunc
	sent   bool // it is on its way, or there; guarded by session.mu
}

// Send implements rpc.Transport.
func (s *session) Send(ctx context.Context, call *rpc.Pending, pieces [][]byte) error {
	err := s.conn.Sending(call)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, err)
	}
	text := pieces[0]
	if len(pieces) > 1 {
		text = bytes.Join(pieces, nil)
	}
	m := parse(bytes.TrimSuffix(text, []byte("\n")))
	if call != nil {
		m.call, m.whose = call.ID, call.Owner
	}
	select {
	case s.outbox <- m:
		return nil
	case <-s.ending:
		return errOver
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", rpc.ErrNotSent, context.Cause(ctx))
	}
}

// Post implements rpc.Transport.
func (s *session) Post(_ turns.Owner, text []byte) {
	select {
	case s.outbox <- parse(bytes.TrimSuffix(text, []byte("\n"))):
	case <-s.ending: // nobody is told any more
	}
}

// Close implements rpc.Transport. What is under way ends with the session.
func (s *session) Close() {}

// forward takes what the capsule sends, until the session ends.
// It waits for nobody, so that one server that is slow does not keep a
// cancellation from it. last is the context of what has no answer.
func (s *session) forward(ctx, last context.Context) {
	opened := make(chan struct{}) // closed when the server has been told that the handshake is over
	greeted := false
	for {
		var m message
		select {
		case m = <-s.outbox:
		case <-s.ending:
			return
		}
		var after <-chan struct{} // what has to come first
		if greeted {
			after = opened
		}
		switch {
		case m.method == "notifications/initialized" && !greeted:
			greeted = true
			s.work.Go(func() {
				defer s.contain()
				defer close(opened)
				s.tell(last, m)
				s.work.Go(func() {
					defer s.contain()
					s.listen(ctx)
				})
			})
		case m.isRequest():
			s.begin(ctx, m, after)
		case m.method == "notifications/cancelled":
			s.cancel(last, m)
		default:
			s.later(ctx, last, m, after)
		}
	}
}

// reached waits until a channel is closed, and reports false when ctx ends before.
func reached(ctx context.Context, c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin sends a request, after what has to come first.
func (s *session) begin(ctx context.Context, m message, after <-chan struct{}) {
	if !s.begun.Try(m.whose, 1) {
		f := fault.New(fault.NotReady, "%d requests are open already; try again later", s.begun.Taken())
		f.Unsent = true
		s.conn.Fail(m.call, s.failure(f))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &request{message: m, cancel: cancel}
	s.mu.Lock()
	s.open[string(m.id)] = r
	s.mu.Unlock()
	s.work.Go(func() {
		defer s.contain()
		defer s.begun.Give(m.whose, 1)
		defer cancel()
		err := s.serve(ctx, r, after)
		s.close(r, err)
	})
}

// serve sends a request when its turn has come, and passes on what the server
// answers. An error says that there was no answer.
func (s *session) serve(ctx context.Context, r *request, after <-chan struct{}) error {
	if !reached(ctx, after) {
		return context.Cause(ctx)
	}
	if err := s.posts.Take(ctx, r.whose, 1); err != nil {
		return err
	}
	defer s.posts.Give(r.whose, 1)
	if err := s.leaves(ctx, r); err != nil {
		return err
	}
	return s.opts.Auth.Do(ctx, func(c auth.Credentials) error { return s.post(ctx, r.message, c) })
}

// leaves notes that a request is on its way. An error says that it is not, and
// that it must not be sent: who cancels it does not tell the server.
func (s *session) leaves(ctx context.Context, r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return errOver
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	r.sent = true
	return nil
}

// close answers a request that the server did not, and sees what that says of
// the session.
func (s *session) close(r *request, err error) {
	s.mu.Lock()
	delete(s.open, string(r.id))
	others := len(s.open)
	f, isFault := errors.AsType[*fault.Error](err)
	unsent := isFault && unreachable(f)
	switch {
	case err == nil:
		s.lost = ""
	case unsent:
		s.lost = f.Reason
	}
	// What others wait for may come yet, over connections that are still there.
	lost := s.lost != "" && others == 0
	why, ended, sent := s.lost, s.ended, r.sent
	s.mu.Unlock()
	if lost && unsent || errors.Is(err, context.Canceled) && ended && !sent {
		err = errOver
	}
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case lost && (r.method == "initialize" || r.method == "server/discover"): // the capsule is told by the end
	default:
		s.conn.Fail(r.call, s.failure(err))
	}
	switch {
	case ended:
		s.expire()
	case lost:
		s.exit("lost its server (%s)", why)
	}
}

// expire ends a session that its server has ended: when the requests that are
// under way know that as well, so that they are made of the next one.
func (s *session) expire() {
	s.mu.Lock()
	s.ended = true
	others := len(s.open) > 0
	first := !s.expiring
	s.expiring = true
	s.mu.Unlock()
	switch {
	case !others:
		s.exit(lostSession)
	case first:
		s.work.Go(func() {
			defer s.contain()
			timer := time.NewTimer(linger)
			defer timer.Stop()
			select {
			case <-timer.C:
				s.exit(lostSession)
			case <-s.ending:
			}
		})
	}
}

// lostSession is how a session ended that its server has ended.
const lostSession = "lost its session: the server does not know it any more"

// unreachable reports whether a fault says that there was no connection, and
// that there may be one the next time.
func unreachable(f *fault.Error) bool {
	return f.Unsent && f.Code == fault.ExecutionFailed && f.Retryable()
}

// cancel tells the server that a request is not waited for any more, and lets go
// of it.
func (s *session) cancel(ctx context.Context, m message) {
	r := s.drop(m.cancels())
	if r == nil {
		return // the server knows nothing of it, or has answered
	}
	s.work.Go(func() {
		defer s.contain()
		defer r.cancel()
		s.tell(ctx, m)
	})
}

// drop ends a request that the server need not be told of, and returns one that it
// has to be told of before.
func (s *session) drop(id string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.open[id]
	switch {
	case r == nil: // it has its answer
		return nil
	case !r.sent, r.stateless(), r.method == "initialize": // which must not be cancelled (lifecycle)
		r.cancel() // under the lock, so that it is not sent meanwhile
		return nil
	}
	return r
}

// abandon ends all requests by cancel, and tells the server which are not waited
// for any more: the end of a session does not end them everywhere.
func (s *session) abandon(ctx context.Context, cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel() // under the lock, so that none is sent that the server is not told of
	if s.ended || s.lost != "" {
		return
	}
	for id, r := range s.open {
		if r.sent && !r.stateless() && r.method != "initialize" {
			s.work.Go(func() {
				defer s.contain()
				s.tell(ctx, message{
					text:   fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"the session ends"}}`, id),
					method: "notifications/cancelled",
				})
			})
		}
	}
}

// tell sends a message that has no answer.
func (s *session) tell(ctx context.Context, m message) {
	ctx, cancel := context.WithTimeoutCause(ctx, tellTimeout, fault.New(fault.Timeout, "the server did not take it within %s", tellTimeout))
	defer cancel()
	err := s.opts.Auth.Do(ctx, func(c auth.Credentials) error { return s.post(ctx, m, c) })
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return
	case errors.Is(err, errOver):
		s.expire()
		return
	}
	f := fault.From(err)
	s.say("the server was not told %s: %s", m.called(), f.Reason)
	if unreachable(f) {
		s.lose(f)
	}
}

// request makes a request of the transport.
func (s *session) request(ctx context.Context, method string, body []byte, c auth.Credentials) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.endpoint, content)
	if err != nil { // the manifest's URL was parsed
		return nil, fault.Wrap(fault.RuntimePolicyInvalid, err, "the endpoint is no URL")
	}
	s.mu.Lock()
	id, speaks := s.id, s.speaks
	s.show(c)
	s.mu.Unlock()
	if id != "" {
		req.Header.Set(headerSession, id)
	}
	if speaks != "" {
		req.Header.Set(headerVersion, speaks)
	}
	if s.opts.UserAgent != "" {
		req.Header.Set("User-Agent", s.opts.UserAgent)
	}
	c.Apply(req.Header)
	return req, nil
}

// post sends one message, and takes what the server answers.
func (s *session) post(ctx context.Context, m message, c auth.Credentials) error {
	req, err := s.request(ctx, http.MethodPost, m.text, c)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", typeJSON)
	req.Header.Set("Accept", typeJSON+", "+typeSSE)
	if m.stateless() {
		s.headers(req.Header, m)
	}
	if !m.at.IsZero() {
		req.Header.Set(trace.ParentKey, m.at.Parent())
		if m.at.State() != "" {
			req.Header.Set(trace.StateKey, m.at.State())
		}
	}
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read as far as it matters
	if resp.Request != nil && resp.Request.Method != http.MethodPost {
		return final("the server redirects to %s%s, where a POST cannot follow; name that as the endpoint",
			outbound.Place(resp.Request.URL), resp.Request.URL.Path)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return s.refused(ctx, resp, m, c)
	}
	if !m.isRequest() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal) // so that the connection can be used again
		return nil
	}
	return s.take(ctx, resp, m)
}

// take passes on what a server answers to a request.
func (s *session) take(ctx context.Context, resp *http.Response, m message) error {
	if m.method == "initialize" {
		if err := s.attach(resp.Header.Get(headerSession)); err != nil {
			return err
		}
	}
	kind := contentType(resp.Header)
	switch {
	case kind == typeSSE:
		return s.follow(ctx, resp, m)
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		return final("the server took %s without an answer (%s)", m.method, resp.Status)
	case kind != typeJSON:
		return final("the server answered with %q, which MCP does not know; is there an MCP server at this endpoint?", kind)
	}
	grow, release := s.reading(ctx, m.whose)
	defer release()
	body, err := s.body(resp, grow)
	if err != nil {
		return err
	}
	line := oneLine(body)
	if line == nil {
		return final("the server answered %s with what is no JSON", m.method)
	}
	if !s.hand(line, m) { //nolint:contextcheck // an answer waits in the context of its call
		return final("the server answered %s with something that is no answer to it", m.method)
	}
	return nil
}

// final is a fault of a server that would make it again.
func final(format string, args ...any) *fault.Error {
	f := fault.New(fault.ExecutionFailed, format, args...)
	never := false
	f.Retry = &never
	return f
}

// broken is a fault that may not happen again.
func broken(format string, args ...any) *fault.Error {
	f := fault.New(fault.ExecutionFailed, format, args...)
	again := true
	f.Retry = &again
	return f
}

// contentType is the type of an answer without its parameters, for a message.
func contentType(h http.Header) string {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(h.Get("Content-Type"), ";")
	}
	const enough = 100
	return kind[:min(len(kind), enough)]
}

// maxMedium and maxLarge bound the answers to one caller that are read at once and are
// larger than small, or than large. Those to all may be twice as many.
const (
	maxMedium = 64
	maxLarge  = 4
)

// reading returns what waits until more of a message may be read, as part of somebody's
// share, and what gives back all that it got. A message asks for the first step when it is
// larger than small, and for the second when it is larger than large.
func (s *session) reading(ctx context.Context, whose turns.Owner) (grow func(step int) error, release func()) {
	var has [len(steps)]bool
	shares := [len(steps)]*turns.Shares{s.medium, s.large}
	grow = func(step int) error {
		err := shares[step].Take(ctx, whose, 1)
		has[step] = err == nil
		return err
	}
	return grow, func() {
		for step, of := range shares {
			if has[step] {
				of.Give(whose, 1)
			}
		}
		has = [len(steps)]bool{}
	}
}

// body reads a whole answer. grow is called before one is read that is larger than a step.
func (s *session) body(resp *http.Response, grow func(step int) error) ([]byte, error) {
	var body []byte
	for step := range len(steps) + 1 {
		most := s.max + 1
		if step < len(steps) {
			most = min(steps[step], most)
		}
		more, err := outbound.Body(io.LimitReader(resp.Body, int64(most-len(body))), int64(most-len(body)))
		if err != nil {
			return nil, err
		}
		if body == nil {
			body = more
		} else {
			body = append(body, more...)
		}
		if len(body) < most {
			return body, nil
		}
		if step < len(steps) && len(body) <= s.max {
			if err := grow(step); err != nil {
				return nil, err
			}
		}
	}
	return nil, s.tooLarge()
}

func (s *session) tooLarge() *fault.Error {
	return final("the server gave an answer of over max_message (%d bytes)", s.max)
}

// hand passes a message of the server's on, and reports whether it was the answer
// to m.
func (s *session) hand(line []byte, m message) (answered bool) {
	if m.isRequest() {
		var result []byte
		if result, answered = answers(line, m.id); answered && m.method == "initialize" {
			s.agree(result)
		}
		if !answered {
			var question json.RawMessage
			if line, question = about(line, m.id); question != nil {
				s.asked.add(question, m.whose)
			}
		} else if m.stateless() && m.method == "tools/list" {
			s.learn(m, line)
		}
	}
	s.pass(line)
	return answered
}
