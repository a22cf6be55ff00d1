package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
)

const (
	// firstPause and lastPause are the first and the longest pause before a stream is opened again, if
	// the server sets none.
	firstPause, lastPause = time.Second, 30 * time.Second
	// leastPause is the shortest pause that a server may set.
	leastPause = 100 * time.Millisecond
	// maxResumes is how many times in a row the stream of an answer is opened again without any new
	// event.
	maxResumes = 5
)

// pauseBefore returns the pause before a stream is opened again for the nth time without any new
// event, counted from 0.
func pauseBefore(n int, asked time.Duration) time.Duration {
	pause := firstPause
	if asked > 0 {
		pause = max(asked, leastPause)
	}
	for range n {
		pause = min(2*pause, max(lastPause, asked))
	}
	return pause
}

// follow passes on the stream that answers a request. If it breaks, follow resumes it, if the server
// supports that.
func (s *session) follow(ctx context.Context, resp *http.Response, m message) error {
	seen, asked := "", time.Duration(0)
	for tries := 0; ; {
		st := s.stream(ctx, resp, m)
		_ = resp.Body.Close() // everything needed was read
		switch {
		case st.answered:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(st.err, errTooLarge):
			return s.tooLarge()
		case errors.Is(st.err, context.Canceled), errors.Is(st.err, errNoRoom):
			return st.err
		}
		if st.lastID != "" && st.lastID != seen {
			seen, tries = st.lastID, 0
		}
		if st.retry > 0 {
			asked = st.retry
		}
		if seen == "" {
			return broken("the stream of the answer ended before the answer")
		}
		var err error
		if resp, err = s.resume(ctx, seen, &tries, asked); err != nil {
			return err
		}
	}
}

// resume opens a stream again after the event with an id. It counts in tries how many times that was
// done without any new event.
func (s *session) resume(ctx context.Context, lastID string, tries *int, asked time.Duration) (*http.Response, error) {
	for {
		if *tries == maxResumes {
			return nil, broken("the stream of the answer broke, and could not be taken up again")
		}
		if !pace.Sleep(ctx, pauseBefore(*tries, asked)) {
			return nil, context.Cause(ctx)
		}
		*tries++
		resp, err := s.get(ctx, lastID)
		refusal, refused := errors.AsType[*statusError](err)
		switch {
		case err == nil:
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case refused && refusal.gone():
			return nil, broken("the stream of the answer broke, and the server does not take it up again: %s", refusal.fault.Reason)
		}
	}
}

// listen passes on the server's own stream until the session ends. A server need not have one.
func (s *session) listen(ctx context.Context) {
	seen, asked := "", time.Duration(0)
	had := false // there was a stream before
	for tries := 0; ; tries++ {
		resp, err := s.get(ctx, seen)
		refusal, _ := errors.AsType[*statusError](err)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			had = true
			st := s.stream(ctx, resp, message{})
			_ = resp.Body.Close() // it was read to its end
			if errors.Is(st.err, errTooLarge) {
				s.say("the server's own stream: an event of over max_message (%d bytes)", s.max)
			}
			if errors.Is(st.err, errNoRoom) {
				s.say("the server's own stream: %s", errNoRoom.Reason)
			}
			if st.events > 0 {
				tries = 0
			}
			if st.lastID != "" {
				seen = st.lastID
			}
			if st.retry > 0 {
				asked = st.retry
			}
		case refusal != nil && refusal.gone() && had:
			if !s.knownAfter(ctx) {
				return
			}
		case refusal != nil && refusal.gone():
			if refusal.status != http.StatusMethodNotAllowed {
				s.say("the server does not offer its own stream: %s", refusal.fault.Reason)
			}
			return
		default:
			f := fault.From(err)
			s.say("the server's own stream: %s", f.Reason)
			if unreachable(f) && s.lose(f) {
				return
			}
			asked = max(asked, min(f.RetryAfter, maxRetry))
		}
		if !pace.Sleep(ctx, pauseBefore(tries, asked)) {
			return
		}
	}
}

// knownAfter reports whether the server still knows the session, after it has refused to continue
// its own stream; if not, the session is over.
func (s *session) knownAfter(ctx context.Context) bool {
	known := true
	_ = s.opts.Auth.Do(ctx, func(c auth.Credentials) error { // without credentials it cannot be found out
		known = s.known(ctx, c)
		return nil
	})
	s.mu.Lock()
	inSession := s.id != ""
	s.mu.Unlock()
	if known || !inSession {
		return true
	}
	s.expire()
	return false
}

// lose ends the session if the server cannot be reached and no request is in flight. It reports
// whether it did.
func (s *session) lose(f *fault.Error) bool {
	s.mu.Lock()
	s.lost = f.Reason
	busy := len(s.open) > 0
	s.mu.Unlock()
	if busy {
		return false
	}
	s.exit("lost its server (%s)", f.Reason)
	return true
}

// gone reports whether the server does not have the stream, now or ever.
func (e *statusError) gone() bool {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return e.status < 500
}

// get opens a stream: the one of an event id, or the server's own. An error may be a *statusError.
func (s *session) get(ctx context.Context, lastID string) (resp *http.Response, err error) {
	err = s.opts.Auth.Do(ctx, func(c auth.Credentials) (err error) {
		resp, err = s.getAs(ctx, lastID, c) //nolint:bodyclose // the caller does
		return err
	})
	return resp, err
}

func (s *session) getAs(ctx context.Context, lastID string, c auth.Credentials) (*http.Response, error) {
	req, err := s.request(ctx, http.MethodGet, nil, c)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", typeSSE)
	if lastID != "" {
		req.Header.Set(headerLastID, lastID)
	}
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && contentType(resp.Header) == typeSSE {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }() // enough was read
	body, err := outbound.Body(io.LimitReader(resp.Body, maxRefusal), maxRefusal)
	if err != nil {
		body = nil // the status is enough
	}
	if resp.StatusCode < 300 { // it is another resource
		return nil, &statusError{http.StatusMethodNotAllowed, final("it answered %s with %q", resp.Status, contentType(resp.Header))}
	}
	return nil, &statusError{resp.StatusCode, outbound.StatusFault("the server", resp, []byte(c.Redact(string(body))))}
}

// streamed is the result of reading a stream.
type streamed struct {
	answered bool // it had the answer to m
	events   int
	lastID   string // "" if no event had an id
	retry    time.Duration
	err      error // io.EOF at the end of the stream
}

// stream passes on the messages of one stream, in order, until it ends, or for a moment after the
// answer to m.
func (s *session) stream(ctx context.Context, resp *http.Response, m message) (st streamed) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := s.reading(ctx, m.whose)
	defer r.release()
	own := s.paces.join(m.whose)
	defer s.paces.leave(own)
	events := newEventReader(resp.Body, s.max, ctx.Done(), &own.idle, r.grow)
	for {
		ev, err := events.next()
		st.lastID, st.retry, st.err = events.lastID, events.retry, err
		if err != nil {
			return st
		}
		st.events++
		size, isJSON, answered := len(ev.data), false, false
		if ev.name == "" || ev.name == "message" {
			if isJSON, answered, st.err = s.hand(ctx, ev.data, m); st.err != nil {
				return st
			}
			if !isJSON {
				s.say("an event from the server is not JSON")
			}
		}
		if answered && !st.answered {
			st.answered = true
			s.endSoon(ctx, resp)
		}
		r.release() // the data is not used any more
		if isJSON {
			events.passed()
		} else {
			events.skip(size)
		}
	}
}

// endSoon closes a stream after its answer, unless it ends by itself within linger: then its
// connection can be reused.
func (s *session) endSoon(ctx context.Context, resp *http.Response) {
	s.work.Go(func() {
		defer s.contain()
		if pace.Sleep(ctx, linger) {
			_ = resp.Body.Close() // this ends the reading
		}
	})
}
