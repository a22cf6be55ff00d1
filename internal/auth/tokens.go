package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/outbound"
	"github.com/orla-project/orla/internal/secret"
)

const (
	early      = 30 * time.Second // before its end a token is used no more (SPEC-TOOLS 5.2)
	undated    = time.Minute      // how long a token is used whose end is not told
	longest    = 24 * time.Hour   // how long any is, whatever its end
	maxTokens  = 256
	maxAnswer  = 1 << 20 // bytes of a token endpoint's answer
	maxMessage = 200     // bytes of its own words in a reason
)

// Tokens holds the access tokens of all tools, each for as long as it lasts.
// Its methods may be called from any goroutine.
type Tokens struct {
	client *http.Client

	mu    sync.Mutex // guards slots and what is in them
	slots map[key]*slot
}

// NewTokens returns Tokens that are asked for through client.
func NewTokens(client *outbound.Client) *Tokens {
	return &Tokens{
		client: &http.Client{
			Transport:     wholeAnswers{client.HTTPClient().Transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: map[key]*slot{},
	}
}

// grant is what a token is given for.
type grant struct {
	url        string
	id, secret secret.Value
	scopes     []string
}

// key tells grants apart and does not keep their secrets.
type key struct {
	url, id, scopes string
	secret          [sha256.Size]byte
}

func (g grant) key() key {
	return key{g.url, g.id.Reveal(), strings.Join(g.scopes, " "), sha256.Sum256([]byte(g.secret.Reveal()))}
}

// slot is what is known of one grant.
type slot struct {
	token secret.Value
	until time.Time // when the token is used no more
	style oauth2.AuthStyle
	fetch *fetch // non-nil while somebody asks for a token
	used  time.Time
}

// fetch is one question to a token endpoint, and those who wait for its answer.
type fetch struct {
	done      chan struct{} // closed when the fields that follow are set
	token     secret.Value
	err       error
	abandoned bool // whoever asked went away: another has to
}

// get returns a token for g. Of many who want one, one asks and the rest wait;
// when the one goes away, another asks.
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
			return secret.Value{}, unsent(fault.From(context.Cause(ctx)))
		}
		if !f.abandoned {
			return f.token, f.err
		}
	}
}

// ask fetches a token and hands it to all who wait for it.
func (t *Tokens) ask(ctx context.Context, g grant, s *slot, f *fetch, style oauth2.AuthStyle) {
	var until time.Time
	f.token, until, style, f.err = t.exchange(ctx, g, style)
	f.abandoned = f.err != nil && ctx.Err() != nil
	t.mu.Lock()
	s.fetch = nil
	if f.err == nil {
		s.token, s.until, s.style = f.token, until, style
	}
	t.mu.Unlock()
	close(f.done)
}

// slot returns the slot of k, and makes room for it. The caller holds t.mu.
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

// forget gives up the slot that was not used for longest. The caller holds t.mu.
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

// drop makes sure that a token which was not accepted is not used again. One
// that has taken its place stays.
func (t *Tokens) drop(token secret.Value) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.slots {
		if s.token == token {
			s.token = secret.Value{}
		}
	}
}

// exchange asks the token endpoint. style is how the endpoint wants to be told
// who asks, if that is known.
func (t *Tokens) exchange(ctx context.Context, g grant, style oauth2.AuthStyle) (secret.Value, time.Time, oauth2.AuthStyle, error) {
	config := clientcredentials.Config{
		ClientID: g.id.Reveal(), ClientSecret: g.secret.Reveal(), TokenURL: g.url, Scopes: g.scopes, AuthStyle: style,
	}
	began := time.Now()
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		return secret.Value{}, time.Time{}, style, t.failed(ctx, g, err)
	}
	until := began.Add(undated)
	if !token.Expiry.IsZero() {
		until = token.Expiry.Add(-early)
	}
	return secret.NewValue(token.AccessToken), until, style, nil
}

// failed is why there is no token.
func (t *Tokens) failed(ctx context.Context, g grant, err error) *fault.Error {
	if ctx.Err() != nil {
		return unsent(fault.From(context.Cause(ctx)))
	}
	_ = g
	return unsent(fault.New(fault.SecretResolutionFailed, "the token endpoint gave no token"))
}

// unsent says of a fault that the tool was not called.
func unsent(f *fault.Error) *fault.Error {
	if f.Unsent {
		return f
	}
	own := *f // a cause of a context is everybody's
	own.Unsent = true
	return &own
}

// wholeAnswers reads an answer before it is given to oauth2, which would forget
// why one ended early.
type wholeAnswers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wholeAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := outbound.Body(resp.Body, maxAnswer)
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, nil
}
