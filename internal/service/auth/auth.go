// Package auth makes the credentials of a call from an auth profile and a secret (SPEC-TOOLS 5.2): a
// header, or the auth of a contract's request.
//
// Its invariant: secrets are resolved at every attempt and not kept. Access tokens are kept until
// they expire.
package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// The keys of a secret of oauth2_client_credentials.
const (
	clientID     = "client_id"
	clientSecret = "client_secret"
)

// Login gives the access tokens of a server that somebody has logged in to.
type Login interface {
	// Token returns the access token for the next attempt, and what else must not be shown. It is zero if
	// nobody has logged in.
	Token(ctx context.Context) (access secret.Value, others []secret.Value, err error)
	// Renew replaces an access token that the server has refused. The error says why there is no other.
	Renew(ctx context.Context, access secret.Value) error
}

// Options configures a Source.
type Options struct {
	Secrets *secret.Store // required
	Tokens  *Tokens       // required for oauth2_client_credentials
}

// Source makes the credentials of one tool. A nil Source makes none. Its methods may be called from
// any goroutine.
type Source struct {
	auth  manifest.Auth
	opts  Options
	login Login // nil where credentials come from a secret
	last  secret.Last
}

// New returns the Source for a; nil if calls are not authenticated.
func New(a manifest.Auth, opts Options) *Source {
	if a.IsZero() {
		return nil
	}
	return &Source{auth: a, opts: opts}
}

// NewLogin returns the Source for a server that somebody can log in to.
func NewLogin(l Login) *Source { return &Source{login: l} }

// Credentials returns the credentials of the next attempt. For oauth2_client_credentials it may ask
// the token endpoint first. The error is a *fault.Error with Unsent: secret_resolution_failed, or
// why waiting for the endpoint ended.
func (s *Source) Credentials(ctx context.Context) (Credentials, error) {
	if s == nil {
		return Credentials{}, nil
	}
	if s.login != nil {
		return s.loggedIn(ctx)
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
		return Credentials{}, secret.Failed(s.auth.Secret, "%s, and cannot be a header", why)
	}
	switch s.auth.Profile {
	case manifest.AuthAPIKey:
		return Credentials{
			kind: string(manifest.AuthAPIKey), token: value,
			name: s.auth.HeaderName, value: value,
			redactor: s.last.Redactor(value),
		}, nil
	case manifest.AuthBasic:
		_, password, ok := strings.Cut(text, ":")
		if !ok {
			return Credentials{}, secret.Failed(s.auth.Secret, "auth.profile basic wants user:password, and there is no colon in it")
		}
		pair := base64.StdEncoding.EncodeToString([]byte(text))
		return Credentials{
			kind: string(manifest.AuthBasic), token: secret.NewValue(pair),
			name: "Authorization", value: secret.NewValue("Basic " + pair),
			redactor: s.last.Redactor(value, secret.NewValue(password)),
		}, nil
	default: // bearer: the manifest was checked
		return s.bearer(value), nil
	}
}

// bearer returns the credentials for a token that was issued for secrets.
func (s *Source) bearer(token secret.Value, secrets ...secret.Value) Credentials {
	return Credentials{
		kind: string(manifest.AuthBearer), token: token,
		name: "Authorization", value: secret.NewValue("Bearer " + token.Reveal()),
		redactor: s.last.Redactor(append(secrets, token)...),
	}
}

// exchanged returns an access token for the secret.
func (s *Source) exchanged(ctx context.Context) (Credentials, error) {
	pair, err := s.opts.Secrets.Keys(s.auth.Secret, clientID, clientSecret)
	if err != nil {
		return Credentials{}, err
	}
	for _, key := range []string{clientID, clientSecret} {
		if pair[key].IsZero() {
			ref := s.auth.Secret
			ref.Key = key
			return Credentials{}, secret.Failed(ref, "it is empty")
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

// loggedIn returns the access token of a login; none without one.
func (s *Source) loggedIn(ctx context.Context) (Credentials, error) {
	access, others, err := s.login.Token(ctx)
	if err != nil || access.IsZero() {
		return Credentials{}, err
	}
	c := s.bearer(access, others...)
	c.login = true
	return c, nil
}

// Do makes one attempt with current credentials. If the tool does not accept an access token (an
// auth_invalid error), Do drops the token and makes the attempt once more with a new one. The error
// does not contain the credentials.
func (s *Source) Do(ctx context.Context, attempt func(Credentials) error) error {
	c, err := s.Credentials(ctx)
	if err != nil {
		return err
	}
	err = c.redacted(attempt(c))
	switch {
	case s == nil || fault.CodeOf(err) != fault.AuthInvalid:
		return err
	case c.login:
		err = s.login.Renew(ctx, c.token)
	case s.login == nil && s.auth.Profile == manifest.AuthOAuth2:
		s.opts.Tokens.drop(c.token)
		err = nil
	default:
		return err
	}
	if err == nil {
		c, err = s.Credentials(ctx)
	}
	if err == nil {
		err = c.redacted(attempt(c))
	}
	return fault.Sent(err) // the tool has had the first attempt
}

// unfit says why a text is not a valid header value; "" if it is.
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

// Credentials are the credentials of one attempt. The zero value has none. Its methods may be called
// from any goroutine.
type Credentials struct {
	kind     string       // type in the contract
	token    secret.Value // in the contract
	name     string       // of the header
	value    secret.Value // of the header
	redactor *secret.Redactor
	login    bool // they are a login's
}

// Login reports whether the credentials are those of a login.
func (c Credentials) Login() bool { return c.login }

// Apply sets the header.
func (c Credentials) Apply(h http.Header) {
	if c.name != "" {
		h.Set(c.name, c.value.Reveal())
	}
}

// Contract returns the auth of a contract's request: type and token as in an Authorization header,
// or api_key_header and the key. Both are "" without credentials.
func (c Credentials) Contract() (typ, token string) { return c.kind, c.token.Reveal() }

// Same reports whether both have the same header.
func (c Credentials) Same(as Credentials) bool { return c.name == as.name && c.value == as.value }

// RedactBody is Redact for the answer of a service; see secret.Redactor.
func (c Credentials) RedactBody(body []byte) []byte { return c.redactor.RedactBody(body) }

// redacted returns err without the secrets, including its cause. It does not change err, which may
// be shared with other calls.
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

// redactedError is an error with another text.
type redactedError struct {
	text  string
	cause error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.cause }

// RedactBytes is Redact for large texts; see secret.Redactor.
func (c Credentials) RedactBytes(text []byte) []byte { return c.redactor.RedactBytes(text) }

// Redact removes the secrets behind c from a text. It must be applied to every text of a service
// before that is shown or cut.
func (c Credentials) Redact(text string) string { return c.redactor.Redact(text) }
