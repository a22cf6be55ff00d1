package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/orla-project/orla/internal/service/outbound"
)

const (
	maxDocument = 1 << 20 // bytes of a document of the issuer
	maxKeys     = 100     // in a document; what follows is ignored
)

// Server is what an issuer says about itself (OpenID Connect Discovery, RFC 8414).
type Server struct {
	Issuer          string    `json:"issuer"`
	Keys            string    `json:"jwks_uri"`
	Authorization   string    `json:"authorization_endpoint"`
	Registration    string    `json:"registration_endpoint"`
	ClientDocuments bool      `json:"client_id_metadata_document_supported"`
	ClientAuth      []string  `json:"token_endpoint_auth_methods_supported"`
	CodeChallenges  []string  `json:"code_challenge_methods_supported"`
	Date            time.Time `json:"-"` // by the issuer's clock, when it has answered; zero if it has not said
}

// Discover asks an issuer what it is, and for its keys. If only the keys are missing, the Server is not
// nil.
func Discover(ctx context.Context, client *outbound.Client, issuer string) (*Server, []jose.JSONWebKey, error) {
	server, err := describe(ctx, client, issuer)
	if err != nil {
		return nil, nil, err
	}
	if err := CheckIssuer(server.Keys); err != nil {
		return server, nil, fmt.Errorf("the issuer's jwks_uri %w", err)
	}
	body, _, err := get(ctx, client, server.Keys)
	if err != nil {
		return server, nil, err
	}
	found, err := parseKeys(body)
	if err != nil {
		return server, nil, fmt.Errorf("%s: %w", server.Keys, err)
	}
	return server, found, nil
}

// CheckIssuer returns what is wrong with the address of an issuer.
func CheckIssuer(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || strings.ContainsAny(text, "#"):
		return errors.New("is not an address such as https://login.example.com/realms/main")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return errors.New("must begin with https://; http:// is accepted for this machine only, since keys that are fetched without TLS can be exchanged on the way")
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Documents returns where the description of an issuer may be, in the order of the authorization page of
// MCP 2026-07-28.
func Documents(issuer string) []string {
	const openID, oauth = "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"
	base := strings.TrimRight(issuer, "/")
	u, err := url.Parse(base)
	if err != nil || u.Path == "" {
		return []string{base + openID, base + oauth}
	}
	host, path := strings.TrimSuffix(base, u.EscapedPath()), u.EscapedPath()
	return []string{base + openID, host + oauth + path, host + openID + path}
}

// describe fetches the description of an issuer.
func describe(ctx context.Context, client *outbound.Client, issuer string) (*Server, error) {
	var first error
	for _, at := range Documents(issuer) {
		body, header, err := get(ctx, client, at)
		if status, ok := errors.AsType[statusError](err); ok && status.code < 500 {
			if first == nil {
				first = err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		var server Server
		if err := json.Unmarshal(body, &server); err != nil {
			return nil, fmt.Errorf("%s is not a description of an issuer: %w", at, err)
		}
		if server.Issuer != issuer {
			return nil, fmt.Errorf("%s says that the issuer is %s, and auth.oauth.issuer is %s; they must be equal in each character", at, shown(server.Issuer), shown(issuer))
		}
		server.Date, _ = http.ParseTime(header.Get("Date"))
		return &server, nil
	}
	return nil, first
}

// statusError is an answer without a document.
type statusError struct {
	at   string
	code int
}

// Error says what the answer was.
func (s statusError) Error() string {
	text := fmt.Sprintf("%s answers %d %s", s.at, s.code, http.StatusText(s.code))
	if s.code/100 == 3 {
		text += ", and redirects are not followed"
	}
	return text
}

// Missing reports whether an error of Fetch is an answer without a document, so that the document may be
// elsewhere.
func Missing(err error) bool {
	status, ok := errors.AsType[statusError](err)
	return ok && status.code < http.StatusInternalServerError
}

// Fetch fetches a document.
func Fetch(ctx context.Context, client *outbound.Client, at string) ([]byte, error) {
	body, _, err := get(ctx, client, at)
	return body, err
}

// get fetches a document.
func get(ctx context.Context, client *outbound.Client, at string) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, nil, fmt.Errorf("%q is not an address", at)
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := client.HTTPClient().Do(req)
	if err != nil {
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err
		}
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return nil, nil, statusError{at, resp.StatusCode}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(body) > maxDocument:
		return nil, nil, fmt.Errorf("%s answers more than %d bytes", at, maxDocument)
	}
	return body, resp.Header, nil
}

// parseKeys returns the keys of a document that can verify signatures. It ignores others.
func parseKeys(body []byte) ([]jose.JSONWebKey, error) {
	var document struct {
		Keys []map[string]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("not a set of keys: %w", err)
	}
	var found []jose.JSONWebKey
	for _, members := range document.Keys[:min(len(document.Keys), maxKeys)] {
		for _, certificate := range []string{"x5c", "x5t", "x5t#S256", "x5u"} {
			delete(members, certificate) // not used, so that an odd one does no harm
		}
		raw, err := json.Marshal(members)
		if err != nil {
			return nil, err
		}
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil {
			continue
		}
		if public, ok := usable(key); ok {
			found = append(found, public)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no key that an accepted algorithm can use")
	}
	return found, nil
}
