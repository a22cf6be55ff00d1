// Package login gets, keeps and refreshes the access tokens of remote MCP servers that ask for OAuth
// (issue 10, docs/decisions/0046). A person logs in once, by an authorization code with PKCE; the
// tokens then live in files that every Orla of the same state folder uses.
//
// Its invariants: a token is sent only to the resource that it was issued for, and a refresh token only
// to the token endpoint of its issuer; the secret of a client that a person has registered is sent only to an
// issuer that a person has named; a new refresh token is on the disk before the access token that
// came with it is used; no error has a token in it; no request goes to an address that is less public
// than the server's.
package login

import (
	"errors"
	"net/url"
	"strings"

	"github.com/orla-project/orla/internal/service/oauth"
)

// Client says how Orla is known to an authorization server.
type Client struct {
	ID     string `json:"id"`
	Secret string `json:"secret,omitempty"` // "" for a public client
	Method string `json:"method,omitempty"` // how it authenticates at the token endpoint: none, client_secret_basic or client_secret_post
	// From says where it comes from: configured, document or registered.
	From     string `json:"from"`
	Redirect string `json:"redirect,omitempty"` // the redirect URL that was registered
	Scope    string `json:"scope,omitempty"`    // the scopes that were registered
	Expires  int64  `json:"expires,omitempty"`  // when the secret ends, in Unix seconds; 0 for never
}

// The values of Client.From.
const (
	Configured = "configured" // registered by a person
	Document   = "document"   // a client id metadata document
	Registered = "registered" // registered by Orla (RFC 7591)
)

// The values of Client.Method.
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// covers reports whether requests to an endpoint may carry tokens of a resource: the origin is the same,
// and the path of the resource is that of the endpoint or of a folder above it.
func covers(resource, endpoint string) bool {
	r, err := url.Parse(resource)
	if err != nil {
		return false
	}
	e, err := url.Parse(endpoint)
	if err != nil || origin(r) != origin(e) || r.User != nil || r.Fragment != "" || r.RawQuery != "" && r.RawQuery != e.RawQuery {
		return false
	}
	base, path := strings.TrimRight(r.EscapedPath(), "/"), e.EscapedPath()
	for part := range strings.SplitSeq(e.Path, "/") { // a server may resolve dots
		if part == "." || part == ".." {
			return false
		}
	}
	return path == base || strings.HasPrefix(path, base+"/")
}

// origin returns the scheme, host and port of a URL, in one form.
func origin(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "http":
		port = "80"
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// originOf returns the origin of a URL that was checked.
func originOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return origin(u)
}

// hostOf returns the host and port in a URL that was checked, for people.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return strings.TrimPrefix((&url.URL{Host: u.Host}).String(), "//")
}

// checkURL returns what is wrong with a URL that tokens or codes are sent to.
func checkURL(text string) error {
	if len(text) > maxURL || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) || oauth.CheckIssuer(text) != nil {
		return errors.New("must be an https:// URL; http:// is accepted for this machine only")
	}
	return nil
}

// maxURL bounds a URL in bytes.
const maxURL = 4 << 10
