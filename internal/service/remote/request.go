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

// request is a request without an answer yet.
type request struct {
	message
	cancel context.CancelFunc
	sent   bool // it is being sent, or was; guarded by session.mu
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
		m.call, m.whose, m.room = call.ID, call.Owner, call.Account()
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
	case <-s.ending: // the session is ending
	}
}

// Close implements rpc.Transport. Requests in flight end with the session.
func (s *session) Close() {}

// forward sends the capsule's messages until the session ends. It does not block, so that a slow
// server does not delay a cancellation. last is the context for messages without an answer.
func (s *session) forward(ctx, last context.Context) {
	opened := make(chan struct{}) // closed when notifications/initialized was sent
	greeted := false
	for {
		var m message
		select {
		case m = <-s.outbox:
		case <-s.ending:
			return
		}
		var after <-chan struct{} // must be closed before the message is sent
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

// reached waits until a channel is closed, and reports false if ctx ends first.
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

// begin sends a request, after the channel after is closed.
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

// serve sends a request when there is room, and passes on the server's answer. An error means that
// there was no answer.
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

// leaves records that a request is being sent. An error means that it must not be sent: it was
// cancelled before, which the server is not told.
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

// close answers a request that the server did not answer, and checks what that means for the
// session.
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
	// Answers to other requests may still come over existing connections.
	lost := s.lost != "" && others == 0
	why, ended, sent := s.lost, s.ended, r.sent
	s.mu.Unlock()
	if lost && unsent || errors.Is(err, context.Canceled) && ended && !sent {
		err = errOver
	}
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case lost && (r.method == "initialize" || r.method == "server/discover"): // the end of the session tells the capsule
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

// expire ends a session that the server has ended, once the requests in flight have failed too, so
// that the next session makes them again.
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

// lostSession is the reason for the end of a session that the server has ended.
const lostSession = "lost its session: the server does not know it any more"

// lostHolder is the reason for the end of a session whose server is known to have gone (Options.Over).
const lostHolder = "moves to another replica: the one that held it holds it no longer"

// errMoved is what the requests end with that were sent to such a server.
var errMoved = fault.New(fault.NotReady, "it moved to another replica during the call: the one that held it holds it no longer, and it is not known what the call has done; try again")

// move ends the session, since its server is known to have gone. Nothing has crashed: its requests fail by errMoved, before
// the end of the session fails them in another way. Those that were not sent yet are made in the next session.
func (s *session) move() {
	s.mu.Lock()
	s.ended = true
	select { // under the lock, which exit takes, so that expire does not give another reason
	case s.over <- lostHolder:
	default: // it is over already
	}
	var sent []int64
	for _, r := range s.open {
		if r.sent {
			sent = append(sent, r.call)
		}
	}
	s.mu.Unlock()
	for _, call := range sent {
		s.conn.Fail(call, s.failure(errMoved))
	}
}

// unreachable reports whether an error means that there was no connection, and that a retry may
// help.
func unreachable(f *fault.Error) bool {
	return f.Unsent && f.Code == fault.ExecutionFailed && f.Retryable()
}

// cancel cancels a request and tells the server.
func (s *session) cancel(ctx context.Context, m message) {
	r := s.drop(m.cancels())
	if r == nil {
		return // the server has not received it, or has answered
	}
	s.work.Go(func() {
		defer s.contain()
		defer r.cancel()
		s.tell(ctx, m)
	})
}

// drop ends a request if the server need not be told. Otherwise it returns the request, and the
// server must be told first.
func (s *session) drop(id string) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.open[id]
	switch {
	case r == nil: // it has its answer
		return nil
	case !r.sent, r.stateless(), r.method == "initialize": // initialize must not be cancelled (lifecycle)
		r.cancel() // under the lock, so that it is not sent at the same time
		return nil
	}
	return r
}

// abandon ends all requests by cancel, and sends a cancellation for each: not every server cancels
// them at the end of a session.
func (s *session) abandon(ctx context.Context, cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel() // under the lock, so that none is sent afterwards
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
	s.say("could not send %s to the server: %s", m.called(), f.Reason)
	if unreachable(f) {
		s.lose(f)
	}
}
