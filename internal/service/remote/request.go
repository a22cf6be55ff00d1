package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/service/auth"
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
			select {
			case <-time.After(linger):
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
