package login

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
)

const (
	// refreshPatience bounds a refresh, with the wait for another Orla's.
	refreshPatience = 15 * time.Second
	// retryEvery is the least time between two refreshes that fail.
	retryEvery = 5 * time.Second
	// maxRefused is how many refreshes there are in a minute because the server refuses a token: it may
	// refuse each.
	maxRefused = 3
	// closePatience is how long Close waits for a refresh.
	closePatience = 5 * time.Second
)

// Store is the folder with all logins. A nil Store has none.
type Store struct {
	dir    string
	client *outbound.Client
	log    *slog.Logger
	work   sync.WaitGroup // refreshes
}

// NewStore returns the Store in a folder; nil for no folder. client makes the requests.
func NewStore(dir string, client *outbound.Client, log *slog.Logger) *Store {
	if dir == "" {
		return nil
	}
	wholefile.Sweep(dir) // they have tokens
	return &Store{dir: dir, client: client, log: log}
}

// Close waits a short time for refreshes that are under way, so that their tokens are stored.
func (s *Store) Close() {
	if s != nil {
		pace.Await(nil, &s.work, closePatience)
	}
}

// Find returns the login of a server; nil if there is none.
func (s *Store) Find(server, endpoint string) (*Record, error) {
	if s == nil {
		return nil, nil
	}
	return fileOf(s.dir, server, endpoint).read()
}

// Tokens returns the access tokens for a server. With required, a call without a login fails before
// anything is sent.
func (s *Store) Tokens(server, endpoint string, required bool) *Tokens {
	t := &Tokens{store: s, server: server, required: required}
	if s != nil {
		t.file = fileOf(s.dir, server, endpoint)
	}
	return t
}

// Tokens gives the access tokens for one server. Its methods may be called from any goroutine.
type Tokens struct {
	store    *Store
	server   string
	required bool
	file     file

	mu     sync.Mutex // guards the fields that follow
	known  *Record    // what the file has at the moment of at; nil for no login
	at     stamp
	flight *flight // non-nil during a refresh
	last   past
}

// past is what is remembered of earlier refreshes.
type past struct {
	unsaved  *Record // new tokens that could not be stored
	replaces string  // the access token that they replace
	failed   error   // of the last refresh, if it may succeed later
	failedAt time.Time
	refused  []time.Time // when tokens that the server refused were replaced, in the last minute
}

// flight is one refresh, which all calls that need it wait for.
type flight struct {
	done chan struct{} // closed when err is set
	err  error
}

// current returns the login as it is now; nil if there is none. A change of the file counts at once.
func (t *Tokens) current() (*Record, error) {
	if t.store == nil {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.file.stamp()
	if now == t.at {
		return t.known, nil
	}
	r, err := t.file.read()
	if err != nil {
		f := fault.New(fault.SecretResolutionFailed, "the login of %s cannot be used: %v", t.server, err)
		f.Unsent = true
		return nil, f
	}
	t.known, t.at = r, now
	return r, nil
}

// Token returns the access token for the next attempt, and everything else that must not be shown. It is
// zero if nobody has logged in. The error is a *fault.Error.
func (t *Tokens) Token(ctx context.Context) (access secret.Value, others []secret.Value, err error) {
	r, err := t.current()
	switch {
	case err != nil:
		return secret.Value{}, nil, err
	case r == nil && t.required:
		return secret.Value{}, nil, t.again("nobody has logged in")
	case r == nil:
		return secret.Value{}, nil, nil
	case r.Refused != "":
		return secret.Value{}, nil, t.again("the login is over: %s", r.Refused)
	case r.Fresh():
		return secret.NewValue(r.Access), r.secrets(), nil
	}
	if err := t.renew(ctx, r.Access, false); err != nil {
		if r.Valid() && ctx.Err() == nil && fault.CodeOf(err) != fault.AuthInvalid {
			return secret.NewValue(r.Access), r.secrets(), nil // it still has some seconds
		}
		return secret.Value{}, nil, err
	}
	if r, err = t.current(); err != nil {
		return secret.Value{}, nil, err
	}
	if r == nil {
		return secret.Value{}, nil, t.again("somebody has logged out")
	}
	return secret.NewValue(r.Access), r.secrets(), nil
}

// Renew replaces an access token that the server has refused. The error says why there is no other.
func (t *Tokens) Renew(ctx context.Context, access secret.Value) error {
	r, err := t.current()
	switch {
	case err != nil:
		return err
	case r == nil:
		return t.again("nobody is logged in")
	case r.Access != access.Reveal(): // it was replaced
		return nil
	}
	if t.refusedOften() {
		if r, err = t.current(); err == nil && r != nil && r.Access != access.Reveal() {
			return nil // just now
		}
		return t.again("the server does not accept the tokens of the login")
	}
	return t.renew(ctx, r.Access, true)
}

// refusedOften reports whether the server has refused several new tokens in the last minute.
func (t *Tokens) refusedOften() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.refused = slices.DeleteFunc(t.last.refused, func(at time.Time) bool { return time.Since(at) >= time.Minute })
	return len(t.last.refused) >= maxRefused
}

// again is the error if a person has to log in.
func (t *Tokens) again(format string, args ...any) *fault.Error {
	f := fault.New(fault.AuthInvalid, format+"; run: orla login "+t.server, args...)
	f.Unsent = true
	return f
}

// renew replaces an access token, once for all calls. refused says that the server has refused it. The
// refresh goes on if ctx ends, since its new tokens must not be lost.
func (t *Tokens) renew(ctx context.Context, old string, refused bool) error {
	t.mu.Lock()
	if t.last.failed != nil && t.last.unsaved == nil && time.Since(t.last.failedAt) < retryEvery && t.flight == nil {
		defer t.mu.Unlock()
		return t.last.failed
	}
	f := t.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		t.flight = f
		if refused {
			t.last.refused = append(t.last.refused, time.Now())
		}
		t.store.work.Go(func() {
			defer recovered.To(t.store.log, "refresh the tokens of a login", nil)
			t.fly(context.WithoutCancel(ctx), f, old)
		})
	}
	t.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fault.Unsent(context.Cause(ctx))
	}
}

// fly makes a refresh for all that wait for it.
func (t *Tokens) fly(ctx context.Context, f *flight, old string) {
	err := error(t.temporary("was not made to its end")) // replaced below unless there is a panic
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.flight, f.err, t.last.failed = nil, err, nil
		if err != nil && fault.CodeOf(err) != fault.AuthInvalid {
			t.last.failed, t.last.failedAt = err, time.Now()
		}
		close(f.done)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, refreshPatience, t.temporary("took over %s", refreshPatience))
	defer cancel()
	err = t.refresh(ctx, old)
}

// temporary is the error of a refresh that may succeed later.
func (t *Tokens) temporary(format string, args ...any) *fault.Error {
	f := fault.New(fault.SecretResolutionFailed, "the refresh of the login of "+t.server+" "+format, args...)
	again := true
	f.Retry, f.Unsent = &again, true
	return f
}

// refresh replaces an access token, unless another Orla has done it.
func (t *Tokens) refresh(ctx context.Context, old string) error {
	unlock, err := t.file.lock(ctx)
	if err != nil {
		return t.temporary("failed: %v", err)
	}
	defer unlock()
	r, err := t.file.read()
	switch {
	case err != nil:
		return t.temporary("failed: %v", err)
	case r == nil:
		return t.again("somebody has logged out")
	case r.Refused != "":
		return t.again("the login is over: %s", r.Refused)
	case r.Access != old && r.Valid(): // done by another Orla, or a new login
		return nil
	}
	next := t.unsaved(r.Access)
	if next == nil {
		if r.Refresh == "" {
			return t.again("the access token is not valid any more, and the issuer gave no refresh token")
		}
		if next, err = r.refreshed(ctx, t.store.client); err != nil {
			return t.failed(r, err)
		}
	}
	if err := t.file.write(next); err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.last.unsaved, t.last.replaces = next, r.Access
		return t.temporary("gave new tokens, which cannot be stored: %v", err)
	}
	t.mu.Lock()
	t.last.unsaved = nil
	t.mu.Unlock()
	t.store.log.Info("the access token of a login was refreshed", "tool", t.server)
	return nil
}

// unsaved returns tokens that an earlier refresh could not store, if they replace an access token.
func (t *Tokens) unsaved(old string) *Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.replaces != old {
		return nil
	}
	return t.last.unsaved
}

// failed returns the error of a refresh, and marks a login that cannot be used any more.
func (t *Tokens) failed(r *Record, err error) error {
	issuer := "the issuer"
	if u, parseErr := url.Parse(r.TokenEndpoint); parseErr == nil {
		issuer = outbound.Origin(u)
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		if !refused.final() {
			f := t.temporary("failed: %s %v", issuer, refused)
			f.RetryAfter = refused.after
			return f
		}
		over := *r
		over.Refused = issuer + " " + refused.Error()
		if err := t.file.write(&over); err != nil {
			t.store.log.Warn("cannot store that a login is over", "tool", t.server, "err", err)
		}
		return t.again("the login is over: %s", over.Refused)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		if f.Code == fault.SecretResolutionFailed { // the time is over
			return f
		}
		return t.temporary("failed: %s", f.Reason)
	}
	return t.temporary("failed: %s %v", issuer, err)
}
