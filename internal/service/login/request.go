package login

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
)

const (
	maxAnswer = 128 << 10 // bytes of an answer that is not a document
	maxWords  = 200       // bytes of an issuer's words in an error
	maxScopes = 100
)

// RefusedError is an answer of an authorization server that refuses a request.
type RefusedError struct {
	Status int
	Code   string // of OAuth; "" if the answer has none
	words  string
	after  time.Duration
}

// Error says what the answer was.
func (e *RefusedError) Error() string {
	text := "answered " + http.StatusText(e.Status)
	if e.words != "" {
		text += ": " + e.words
	}
	return text
}

// final reports whether no later refresh can succeed: a person has to log in again (RFC 6749, 5.2).
func (e *RefusedError) final() bool {
	switch e.Code {
	case "invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type":
		return true
	case "":
		return e.Status == http.StatusUnauthorized
	}
	return false
}

// style returns how a client authenticates at the token endpoint.
func (c Client) style() oauth2.AuthStyle {
	if c.Method == methodBasic {
		return oauth2.AuthStyleInHeader
	}
	return oauth2.AuthStyleInParams
}

// exchange asks the token endpoint for tokens, and puts them into the record.
func (r *Record) exchange(ctx context.Context, client *outbound.Client, params url.Values) error {
	hidden := r.secrets()
	for _, name := range []string{"code", "code_verifier", "refresh_token"} {
		if text := params.Get(name); text != "" {
			hidden = append(hidden, secret.NewValue(text))
		}
	}
	config := clientcredentials.Config{
		ClientID: r.Client.ID, ClientSecret: r.Client.Secret, TokenURL: r.TokenEndpoint, AuthStyle: r.Client.style(), EndpointParams: params,
	}
	ctx = context.WithValue(outbound.NoLessPublic(ctx, r.Class), oauth2.HTTPClient, client.HTTPClient())
	token, err := config.Token(ctx)
	if err != nil {
		return refusal(ctx, err, hidden)
	}
	return r.absorb(token)
}

// refusal returns the error of a token endpoint, without what may quote a secret.
func refusal(ctx context.Context, err error, hidden []secret.Value) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		words := strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)
		return &RefusedError{
			Status: refused.Response.StatusCode, Code: refused.ErrorCode,
			words: outbound.Words(secret.NewRedactor(hidden...).Redact(words), maxWords), after: outbound.RetryAfter(refused.Response.Header),
		}
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	return errors.New("gave an answer that has no token") // all other errors quote the answer
}

// absorb puts new tokens into the record.
func (r *Record) absorb(token *oauth2.Token) error {
	switch {
	case token.TokenType != "" && !strings.EqualFold(token.TokenType, "bearer"):
		return errors.New("gave a token that is not a bearer token, which Orla cannot use")
	case !bearer(token.AccessToken):
		return errors.New("gave a token that does not fit into a header")
	case len(token.RefreshToken) > maxToken:
		return errors.New("gave a refresh token that is too large")
	}
	r.Access, r.Obtained, r.Expires, r.Refused = token.AccessToken, time.Now().Round(0), token.Expiry.Round(0), ""
	if token.RefreshToken != "" {
		r.Refresh = token.RefreshToken
	}
	if scope, ok := token.Extra("scope").(string); ok && scope != "" {
		list := strings.Fields(scope)
		r.Scopes = list[:min(len(list), maxScopes)]
	}
	if id, ok := token.Extra("id_token").(string); ok {
		r.Who = whoIn(id)
	}
	return nil
}

// whoIn returns whom an ID token names, for people. The token comes from the issuer itself, so that its
// signature needs no check (OpenID Connect Core, 3.1.3.7).
func whoIn(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Name    string `json:"preferred_username"`
		Email   string `json:"email"`
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	for _, name := range []string{claims.Name, claims.Email, claims.Subject} {
		if name = outbound.Words(name, 100); name != "" {
			return name
		}
	}
	return ""
}

// refreshed returns the record with new tokens.
func (r *Record) refreshed(ctx context.Context, client *outbound.Client) (*Record, error) {
	next := *r
	params := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {r.Refresh}, "resource": {r.Resource}}
	if err := next.exchange(ctx, client, params); err != nil {
		return nil, err
	}
	return &next, nil
}

// revoke tells the issuer that the tokens are not used any more (RFC 7009).
func (r *Record) revoke(ctx context.Context, client *outbound.Client) error {
	form := url.Values{"token": {r.Refresh}, "token_type_hint": {"refresh_token"}}
	if r.Refresh == "" {
		form = url.Values{"token": {r.Access}, "token_type_hint": {"access_token"}}
	}
	if r.Client.Method != methodBasic {
		form.Set("client_id", r.Client.ID)
		if r.Client.Secret != "" {
			form.Set("client_secret", r.Client.Secret)
		}
	}
	req, err := http.NewRequestWithContext(outbound.NoLessPublic(ctx, r.Class), http.MethodPost, r.RevocationEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New("the revocation endpoint is not a URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if r.Client.Method == methodBasic {
		req.SetBasicAuth(url.QueryEscape(r.Client.ID), url.QueryEscape(r.Client.Secret))
	}
	return send(client, req, nil, append(r.secrets(), secret.NewValue(r.Access))...)
}

// send makes a request of an authorization server, and decodes the JSON of its answer into v, unless
// that is nil. An error contains none of the hidden values.
func send(client *outbound.Client, req *http.Request, v any, hidden ...secret.Value) error {
	resp, err := client.HTTPClient().Do(req)
	if err != nil {
		if f, ok := errors.AsType[*fault.Error](err); ok {
			return f
		}
		return errors.New("the request failed")
	}
	defer func() { _ = resp.Body.Close() }() // everything needed was read
	body, err := outbound.Body(resp.Body, maxAnswer)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		var said struct {
			Code        string `json:"error"`
			Description string `json:"error_description"`
		}
		_ = json.Unmarshal(bytes.TrimSpace(body), &said) // the status is enough
		words := secret.NewRedactor(hidden...).Redact(strings.TrimSpace(said.Code + " " + said.Description))
		return &RefusedError{Status: resp.StatusCode, Code: said.Code, words: outbound.Words(words, maxWords), after: outbound.RetryAfter(resp.Header)}
	}
	if v != nil && json.Unmarshal(body, v) != nil {
		return errors.New("gave an answer that cannot be read") // the cause may quote a secret
	}
	return nil
}

// cleanScopes returns scopes that are valid (RFC 6749, 3.3), each once.
func cleanScopes(scopes []string) []string {
	var list []string
	for _, s := range scopes {
		odd := strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' })
		if s != "" && !odd && !slices.Contains(list, s) && len(list) < maxScopes {
			list = append(list, s)
		}
	}
	return list
}
