package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
)

const (
	early      = 30 * time.Second // before a token expires it is no longer used (SPEC-TOOLS 5.2)
	undated    = time.Minute      // how long a token without an expiry is used
	longest    = 24 * time.Hour   // how long any token is used
	patience   = 15 * time.Second // for one request to a token endpoint; the attempt may end sooner
	maxTokens  = 256
	maxAnswer  = 128 << 10 // bytes of a token endpoint's answer
	maxMessage = 200       // bytes of the endpoint's message in an error
	maxToken   = 16 << 10
)

// bearer matches the access tokens that are valid in a header. Others can be spelled in many ways in
// an answer, which redaction would need memory for.
var bearer = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// Tokens caches the access tokens of all tools. Its methods may be called from any goroutine.
type Tokens struct {
	client *http.Client

	mu    sync.Mutex // guards slots and their fields
	slots map[key]*slot
}

// NewTokens returns Tokens that makes its requests through client.
func NewTokens(client *outbound.Client) *Tokens { return newTokens(client.HTTPClient().Transport) }

func newTokens(next http.RoundTripper) *Tokens {
	return &Tokens{
		client: &http.Client{
			Transport:     wholeAnswers{next},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: map[key]*slot{},
	}
}

// grant is what a token is issued for.
type grant struct {
	url        string
	id, secret secret.Value
	scopes     []string
}

// key identifies a grant without keeping its secrets.
type key struct {
	url, id, scopes string
	secret          [sha256.Size]byte
}

func (g grant) key() key {
	return key{g.url, g.id.Reveal(), strings.Join(g.scopes, " "), sha256.Sum256([]byte(g.secret.Reveal()))}
}

// slot is the state of one grant.
type slot struct {
	token secret.Value
	until time.Time // when the token is no longer used
	style oauth2.AuthStyle
	fetch *fetch // non-nil during a request for a token
	used  time.Time
}

// fetch is one request to a token endpoint, shared by all callers that wait for it.
type fetch struct {
	done      chan struct{} // closed when the fields that follow are set
	token     secret.Value
	err       error
	abandoned bool // its caller's context ended: another caller has to ask
}

// get returns a token for g. Concurrent callers share one request; if the caller that makes it goes
// away, another one makes a new request.
func (t *Tokens) get(ctx context.Context, g grant) (secret.Value, error) {
	k := g.key()
	for {
		t.mu.Lock()
		s := t.slot(k)
		if !s.token.IsZero() && time.Now().Before(s.until) {
			defer t.mu.Unlock()
			return s.token, nil
		}
		f, style := s.fetch, s.style
		if f == nil {
			f = &fetch{done: make(chan struct{})}
			s.fetch = f
			t.mu.Unlock()
			t.ask(ctx, g, s, f, style)
			return f.token, f.err
		}
		t.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return secret.Value{}, fault.Unsent(context.Cause(ctx))
		}
		if !f.abandoned {
			return f.token, f.err
		}
	}
}

// ask requests a token for all callers that wait for it.
func (t *Tokens) ask(ctx context.Context, g grant, s *slot, f *fetch, style oauth2.AuthStyle) {
	f.err = g.failed(true, "was not asked to the end") // replaced below unless exchange panics
	var until time.Time
	defer func() {
		f.abandoned = f.err != nil && ctx.Err() != nil
		t.mu.Lock()
		s.fetch = nil
		s.style = oauth2.AuthStyleAutoDetect // after a refusal, try both styles again
		if f.err == nil {
			s.token, s.until, s.style = f.token, until, style
		}
		t.mu.Unlock()
		close(f.done)
	}()
	f.token, until, style, f.err = t.exchange(ctx, g, style)
}

// slot returns the slot of k, and makes one if needed. The caller holds t.mu.
func (t *Tokens) slot(k key) *slot {
	now := time.Now()
	s := t.slots[k]
	if s == nil {
		if len(t.slots) >= maxTokens {
			t.forget()
		}
		s = &slot{}
		t.slots[k] = s
	}
	s.used = now
	return s
}

// forget removes the slot that was used least recently. The caller holds t.mu.
func (t *Tokens) forget() {
	var oldest key
	var found bool
	for k, s := range t.slots {
		if s.fetch == nil && (!found || s.used.Before(t.slots[oldest].used)) {
			oldest, found = k, true
		}
	}
	delete(t.slots, oldest)
}

// drop makes sure that a token that was not accepted is not used again. A newer token stays.
func (t *Tokens) drop(token secret.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.token == token {
			s.token = secret.Value{}
		}
	}
}

// exchange asks the token endpoint. It returns the token, until when it may be used, and how the
// endpoint authenticates clients. Nothing announces the style, so exchange tries the header first,
// as RFC 6749 prefers, and then the form.
func (t *Tokens) exchange(ctx context.Context, g grant, style oauth2.AuthStyle) (secret.Value, time.Time, oauth2.AuthStyle, error) {
	patient, cancel := context.WithTimeoutCause(ctx, patience, g.failed(true, "gave no answer within %s", patience))
	defer cancel()
	began := time.Now()
	styles := []oauth2.AuthStyle{style}
	if style == oauth2.AuthStyleAutoDetect {
		styles = []oauth2.AuthStyle{oauth2.AuthStyleInHeader, oauth2.AuthStyleInParams}
	}
	var token *oauth2.Token
	var err error
	for _, style = range styles {
		config := clientcredentials.Config{
			ClientID: g.id.Reveal(), ClientSecret: g.secret.Reveal(), TokenURL: g.url, Scopes: g.scopes, AuthStyle: style,
		}
		token, err = config.Token(context.WithValue(patient, oauth2.HTTPClient, t.client))
		if !unknownClient(err) {
			break
		}
	}
	if err != nil {
		return secret.Value{}, time.Time{}, style, g.why(patient, err)
	}
	if !bearer.MatchString(token.AccessToken) {
		return secret.Value{}, time.Time{}, style, g.failed(false, "gave a token with characters that a bearer token cannot have (RFC 6750, 2.1)")
	}
	if len(token.AccessToken) > maxToken {
		return secret.Value{}, time.Time{}, style, g.failed(false, "gave a token of over %d bytes", maxToken)
	}
	until := began.Add(undated)
	if !token.Expiry.IsZero() {
		until = token.Expiry.Add(-early)
	}
	if last := began.Add(longest); until.After(last) {
		until = last
	}
	return secret.NewValue(token.AccessToken), until, style, nil
}

// unknownClient reports whether an endpoint did not recognise the client.
func unknownClient(err error) bool {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return false
	}
	status := refused.Response.StatusCode
	return status == http.StatusUnauthorized || status == http.StatusBadRequest &&
		(refused.ErrorCode == "" || refused.ErrorCode == "invalid_client" || refused.ErrorCode == "invalid_request")
}

// why returns the reason why there is no token.
func (g grant) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fault.Unsent(context.Cause(ctx))
	}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := refused.Response.StatusCode
		again := status >= 500 || status == http.StatusTooManyRequests
		f := g.failed(again, "answered %d%s", status, g.words(refused))
		f.RetryAfter = outbound.RetryAfter(refused.Response.Header)
		return f
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		if f.Code != fault.ExecutionFailed { // a blocked address has a better message
			return fault.Unsent(f)
		}
		return g.failed(f.Retryable(), "could not be asked: %s", f.Reason)
	}
	// All other errors are about the answer, and quote it.
	return g.failed(false, "gave an answer that holds no token")
}

// failed returns an error of the token endpoint.
func (g grant) failed(again bool, format string, args ...any) *fault.Error {
	where := "token endpoint"
	if u, err := url.Parse(g.url); err == nil {
		where += " " + outbound.Origin(u)
	}
	f := fault.New(fault.SecretResolutionFailed, "%s "+format, append([]any{where}, args...)...)
	f.Retry, f.Unsent = &again, true
	return f
}

// words returns the endpoint's message about a refusal, without what it may repeat from the request.
func (g grant) words(refused *oauth2.RetrieveError) string {
	said := strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)
	if said == "" {
		return ""
	}
	inHeader := url.QueryEscape(g.id.Reveal()) + ":" + url.QueryEscape(g.secret.Reveal())
	said = secret.NewRedactor(g.secret, secret.NewValue(inHeader), g.id).Redact(said)
	return ": " + outbound.Words(said, maxMessage)
}

// wholeAnswers reads each answer completely before it is passed to oauth2, which would lose the
// reason why one ended early.
type wholeAnswers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wholeAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // everything needed was read
	body, err := outbound.Body(resp.Body, maxAnswer)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
