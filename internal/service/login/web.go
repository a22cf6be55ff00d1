package login

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/orla-project/orla/internal/service/outbound"
)

// metaLife is for how long the metadata of an issuer is not asked for again.
const metaLife = 10 * time.Minute

// Web logs persons in to a page of Orla itself: it gets the access tokens that Orla accepts from others. It keeps
// nothing of a login, which is in the page. Its methods may be called from any goroutine.
type Web struct {
	Client   *outbound.Client // required
	Issuer   string
	ClientID string // that the issuer knows the page by
	// Secret returns the client's secret; "" for a public client. nil is a public client.
	Secret   func() (string, error)
	Resource string // that the tokens are for
	Audience string // of the tokens, if it is not the resource
	Scopes   []string

	mu   sync.Mutex // guards the fields that follow
	meta *oauthex.AuthServerMeta
	read time.Time
}

// Ticket is a login that has begun. Who has it and the answer of the issuer can finish it.
type Ticket struct {
	Open     string // the page of the issuer
	State    string // that the answer has
	Verifier string // of PKCE
}

// Begin returns a login whose answer goes to a redirect URL.
func (w *Web) Begin(ctx context.Context, redirect string) (Ticket, error) {
	meta, err := w.describe(ctx)
	if err != nil {
		return Ticket{}, err
	}
	t := Ticket{State: rand.Text() + rand.Text(), Verifier: oauth2.GenerateVerifier()}
	config := oauth2.Config{ClientID: w.ClientID, RedirectURL: redirect, Scopes: cleanScopes(w.Scopes), Endpoint: oauth2.Endpoint{AuthURL: meta.AuthorizationEndpoint}}
	params := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(t.Verifier), oauth2.SetAuthURLParam("resource", w.Resource)}
	if w.Audience != "" {
		params = append(params, oauth2.SetAuthURLParam("audience", w.Audience))
	}
	t.Open = config.AuthCodeURL(t.State, params...)
	return t, nil
}

// Finish exchanges the answer of the issuer for an access token.
func (w *Web) Finish(ctx context.Context, redirect string, t Ticket, said url.Values) (string, error) {
	meta, err := w.describe(ctx)
	if err != nil {
		return "", err
	}
	code, err := answer{said}.code(t.State, meta.Issuer, meta.AuthorizationResponseIssParameterSupported)
	if err != nil {
		return "", err
	}
	client := Client{ID: w.ClientID, Method: methodNone, From: Configured, Redirect: redirect}
	if w.Secret != nil {
		if client.Secret, err = w.Secret(); err != nil {
			return "", err
		}
		client.Method = methodOf(meta.TokenEndpointAuthMethodsSupported)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r := Record{Client: client, TokenEndpoint: meta.TokenEndpoint, Class: outbound.AnyClass} // the operator has named the issuer
	err = r.exchange(ctx, w.Client, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {t.Verifier}, "redirect_uri": {redirect}, "resource": {w.Resource},
	})
	if err != nil {
		return "", fmt.Errorf("the issuer %s gave no token: %w", meta.Issuer, err)
	}
	return r.Access, nil
}

// describe returns the metadata of the issuer, which it keeps for a while.
func (w *Web) describe(ctx context.Context) (*oauthex.AuthServerMeta, error) {
	w.mu.Lock()
	meta, age := w.meta, time.Since(w.read)
	w.mu.Unlock()
	if meta != nil && age < metaLife {
		return meta, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var s server
	if err := s.describeIssuer(ctx, w.Client, w.Issuer); err != nil {
		return nil, reason(ctx, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meta, w.read = s.issuer, time.Now()
	return w.meta, nil
}
