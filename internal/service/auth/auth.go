// Package auth turns an auth profile and a secret into what a call shows of
// itself (SPEC-TOOLS 5.2): a header, or the auth of a contract's request.
//
// Its invariant: secrets are asked for afresh at every attempt and are kept by
// nobody; what is kept is the access tokens that were given for them, for as
// long as they last.
package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// The keys of a secret of oauth2_client_credentials.
const (
	clientID     = "client_id"
	clientSecret = "client_secret"
)

// Options are what a Source needs.
type Options struct {
	Secrets *secret.Store // required
	Tokens  *Tokens       // required for oauth2_client_credentials
}

// Source gives the credentials of one tool. A nil Source gives none. Its methods
// may be called from any goroutine.
type Source struct {
	auth manifest.Auth
	opts Options
	last atomic.Pointer[weak.Pointer[secret.Redactor]]
}

// New returns the Source of a, and nil if calls are not authenticated.
func New(a manifest.Auth, opts Options) *Source {
	if a.IsZero() {
		return nil
	}
	return &Source{auth: a, opts: opts}
}

// redactor returns the Redactor for values. To make one takes longer than all
// else of an attempt, and so the last one is used again where the values are the
// same. It is kept until it is garbage, and no longer.
func (s *Source) redactor(values ...secret.Value) *secret.Redactor {
	if last := s.last.Load(); last != nil {
		if r := last.Value(); r.Of(values...) {
			return r
		}
	}
	r := secret.NewRedactor(values...)
	last := weak.Make(r)
	s.last.Store(&last)
	return r
}

// Credentials returns what the next attempt shows. Of oauth2_client_credentials
// it may ask the token endpoint first. The error is a *fault.Error that says
// Unsent: secret_resolution_failed, or why the wait for the endpoint has ended.
func (s *Source) Credentials(ctx context.Context) (Credentials, error) {
	if s == nil {
		return Credentials{}, nil
	}
	if s.auth.Profile == manifest.AuthOAuth2 {
		return s.exchanged(ctx)
	}
	value, err := s.opts.Secrets.Resolve(s.auth.Secret)
	if err != nil {
		return Credentials{}, err
	}
	text := value.Reveal()
	if why := unfit(text); why != "" {
		return Credentials{}, s.failed(s.auth.Secret, "%s, and cannot be a header", why)
	}
	switch s.auth.Profile {
	case manifest.AuthAPIKey:
		return Credentials{
			kind: string(manifest.AuthAPIKey), token: value,
			name: s.auth.HeaderName, value: value,
			redactor: s.redactor(value),
		}, nil
	case manifest.AuthBasic:
		_, password, ok := strings.Cut(text, ":")
		if !ok {
			return Credentials{}, s.failed(s.auth.Secret, "auth.profile basic wants user:password, and there is no colon in it")
		}
		pair := base64.StdEncoding.EncodeToString([]byte(text))
		return Credentials{
			kind: string(manifest.AuthBasic), token: secret.NewValue(pair),
			name: "Authorization", value: secret.NewValue("Basic " + pair),
			redactor: s.redactor(value, secret.NewValue(password)),
		}, nil
	default: // bearer, and nothing else: the manifest was checked
		return s.bearer(value), nil
	}
}

// bearer are the credentials that a token is, which was given for secrets.
func (s *Source) bearer(token secret.Value, secrets ...secret.Value) Credentials {
	return Credentials{
		kind: string(manifest.AuthBearer), token: token,
		name: "Authorization", value: secret.NewValue("Bearer " + token.Reveal()),
		redactor: s.redactor(append(secrets, token)...),
	}
}

// exchanged gets an access token for the secret.
func (s *Source) exchanged(ctx context.Context) (Credentials, error) {
	pair, err := s.opts.Secrets.Keys(s.auth.Secret, clientID, clientSecret)
	if err != nil {
		return Credentials{}, err
	}
	for _, key := range []string{clientID, clientSecret} {
		if pair[key].IsZero() {
			ref := s.auth.Secret
			ref.Key = key
			return Credentials{}, s.failed(ref, "it is empty")
		}
	}
	got, err := s.opts.Tokens.get(ctx, grant{
		url: s.auth.TokenURL, id: pair[clientID], secret: pair[clientSecret], scopes: s.auth.Scopes,
	})
	if err != nil {
		return Credentials{}, err
	}
	return s.bearer(got, pair[clientID], pair[clientSecret]), nil
}

// Do makes one attempt with fresh credentials. When the tool does not accept an
// access token, which is an error auth_invalid, the token is dropped and the
// attempt made once more with a new one. Its error is without what was shown.
func (s *Source) Do(ctx context.Context, attempt func(Credentials) error) error {
	c, err := s.Credentials(ctx)
	if err != nil {
		return err
	}
	err = c.redacted(attempt(c))
	if s == nil || s.auth.Profile != manifest.AuthOAuth2 || fault.CodeOf(err) != fault.AuthInvalid {
		return err
	}
	s.opts.Tokens.drop(c.token)
	if c, err = s.Credentials(ctx); err != nil {
		return err
	}
	return c.redacted(attempt(c))
}

func (s *Source) failed(ref secret.Ref, format string, args ...any) *fault.Error {
	f := fault.New(fault.SecretResolutionFailed, "secret %q: "+format, append([]any{ref.String()}, args...)...)
	f.Unsent = true
	return f
}

// unfit says why a text cannot be the value of a header; "" if it can.
func unfit(text string) string {
	if text == "" {
		return "it is empty"
	}
	for _, b := range []byte(text) {
		switch {
		case b == '\n' || b == '\r':
			return "it has a line break"
		case b < ' ' && b != '\t' || b == 0x7f:
			return "it has a control character"
		}
	}
	return ""
}

// Credentials are what one attempt shows. The zero Credentials show nothing.
// They may be used from any goroutine.
type Credentials struct {
	kind     string       // as the contract calls them
	token    secret.Value // in the contract
	name     string       // of the header
	value    secret.Value // of the header
	redactor *secret.Redactor
}

// Apply sets the header.
func (c Credentials) Apply(h http.Header) {
	if c.name != "" {
		h.Set(c.name, c.value.Reveal())
	}
}

// Contract returns the auth of a contract's request: type and token as they
// stand in an Authorization header, or api_key_header and the key. Both are ""
// without credentials.
func (c Credentials) Contract() (typ, token string) { return c.kind, c.token.Reveal() }

// Same reports whether both show the same.
func (c Credentials) Same(as Credentials) bool { return c.name == as.name && c.value == as.value }

// RedactBody is Redact for what a service answers; see secret.Redactor.
func (c Credentials) RedactBody(body []byte) []byte { return c.redactor.RedactBody(body) }

// redacted takes the secrets out of a fault, its cause included. A fault may be
// shared with other calls and is not changed itself.
func (c Credentials) redacted(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || c.redactor == nil {
		return err
	}
	clean := *f
	clean.Reason, clean.Logged = c.Redact(f.Reason), c.Redact(f.Logged)
	same := clean.Reason == f.Reason && clean.Logged == f.Logged
	if f.Err != nil {
		if text := f.Err.Error(); c.Redact(text) != text {
			clean.Err, same = &redactedError{c.Redact(text), f.Err}, false
		}
	}
	if same {
		return err
	}
	return &clean
}

// redactedError is a cause with another text.
type redactedError struct {
	text  string
	cause error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.cause }

// RedactBytes is Redact for what is large; see secret.Redactor.
func (c Credentials) RedactBytes(text []byte) []byte { return c.redactor.RedactBytes(text) }

// Redact takes the secrets behind c out of a text. It must be applied to whatever
// a service says before it is shown or cut.
func (c Credentials) Redact(text string) string { return c.redactor.Redact(text) }
