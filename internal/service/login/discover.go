package login

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/orla-project/orla/internal/service/oauth"
	"github.com/orla-project/orla/internal/service/outbound"
)

// server is what is known of a server that asks for OAuth, and of its issuer.
type server struct {
	class    string // of its address
	resource string
	scopes   []string // that the server asks for
	issuer   *oauthex.AuthServerMeta
}

// discover finds out where to log in for an endpoint: the server's challenge or a well-known address
// leads to the metadata of the resource (RFC 9728), and these to those of the issuer (RFC 8414). wanted
// is the issuer to use if there are several; "" for the first one.
func discover(ctx context.Context, client *outbound.Client, endpoint, userAgent, wanted string) (*server, error) {
	if err := checkURL(endpoint); err != nil {
		return nil, fmt.Errorf("the endpoint %w", err)
	}
	s := &server{}
	challenge, asked, err := s.probe(ctx, client, endpoint, userAgent)
	if err != nil {
		return nil, err
	}
	ctx = outbound.NoLessPublic(ctx, s.class)
	issuer, err := s.describeResource(ctx, client, endpoint, challenge, asked, wanted)
	if err != nil {
		return nil, err
	}
	return s, s.describeIssuer(ctx, client, issuer)
}

// probe begins a session without credentials. asked says whether the server wants some.
func (s *server) probe(ctx context.Context, client *outbound.Client, endpoint, userAgent string) (challenge map[string]string, asked bool, err error) {
	const first = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"orla","version":"0"}}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(first))
	if err != nil {
		return nil, false, errors.New("the endpoint is not a URL")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("User-Agent", userAgent)
	resp, err := client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = resp.Body.Close() }()                     // its header is enough
	_, _ = io.CopyN(io.Discard, io.LimitReader(resp.Body, 1), 1) // an answer has begun
	s.class = outbound.ClassOf(resp)
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return bearerChallenge(resp.Header), true, nil
	case resp.StatusCode >= http.StatusInternalServerError:
		return nil, false, outbound.StatusFault("the server", resp, nil)
	}
	leave(ctx, client, endpoint, resp.Header.Get("Mcp-Session-Id"))
	return nil, false, nil
}

// leave ends the session of a probe that was let in.
func leave(ctx context.Context, client *outbound.Client, endpoint, session string) {
	if session == "" {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, endpoint, http.NoBody)
	if err != nil {
		return
	}
	req.Header.Set("Mcp-Session-Id", session)
	if resp, err := client.Do(req); err == nil {
		_ = resp.Body.Close() // whatever it says
	}
}

// bearerChallenge returns the parameters of the first Bearer challenge that names metadata, or else of
// the first one.
func bearerChallenge(h http.Header) map[string]string {
	list, err := oauthex.ParseWWWAuthenticate(outbound.Challenges(h))
	if err != nil {
		return nil // there is still the well-known address
	}
	var found map[string]string
	for _, c := range list {
		if c.Scheme == "bearer" && (found == nil || found["resource_metadata"] == "" && c.Params["resource_metadata"] != "") {
			found = c.Params
		}
	}
	return found
}

// describeResource reads the metadata of the resource, and returns the issuer.
func (s *server) describeResource(ctx context.Context, client *outbound.Client, endpoint string, challenge map[string]string, asked bool, wanted string) (issuer string, err error) {
	s.scopes = cleanScopes(strings.Fields(challenge["scope"]))
	at, err := resourceDocuments(endpoint, challenge["resource_metadata"])
	if err != nil {
		return "", err
	}
	named := challenge["resource_metadata"] != ""
	var wrong error
	for _, one := range at {
		found, err := resourceIn(ctx, client, one, endpoint)
		if err != nil && !named && ctx.Err() == nil {
			if !oauth.Missing(err) && !errors.Is(err, errNoJSON) { // some servers answer a page for any address
				wrong = cmp.Or(wrong, err)
			}
			continue
		}
		if err != nil {
			return "", fmt.Errorf("the metadata of the server: %w", err)
		}
		s.resource = found.Resource
		if len(s.scopes) == 0 {
			s.scopes = cleanScopes(found.ScopesSupported)
		}
		return chosen(found.AuthorizationServers, wanted, one)
	}
	if wrong != nil {
		return "", fmt.Errorf("the metadata of the server: %w", wrong)
	}
	if !asked {
		return "", errors.New("the server does not ask for a login: it accepts a session without credentials, and names no issuer")
	}
	// Servers of 2025-03-26 are their own issuers.
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	s.resource = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	return chosen([]string{outbound.Origin(u)}, strings.TrimSuffix(wanted, "/"), endpoint)
}

// errNoJSON is the reason why a document cannot be read.
var errNoJSON = errors.New("it is not the JSON that was expected")

// resourceIn reads the metadata of the resource in one document.
func resourceIn(ctx context.Context, client *outbound.Client, at, endpoint string) (*oauthex.ProtectedResourceMetadata, error) {
	body, err := oauth.Fetch(ctx, client, at)
	if err != nil {
		return nil, err
	}
	var found oauthex.ProtectedResourceMetadata
	if json.Unmarshal(body, &found) != nil {
		return nil, fmt.Errorf("%s is not the metadata of a resource: %w", at, errNoJSON)
	}
	if !covers(found.Resource, endpoint) {
		return nil, fmt.Errorf("%s is about the resource %s, and not about %s; Orla does not log in there", at, quoted(found.Resource), endpoint)
	}
	return &found, nil
}

// resourceDocuments returns where the metadata of a resource may be: where the challenge says, or else at
// the well-known addresses.
func resourceDocuments(endpoint, named string) ([]string, error) {
	if named != "" {
		if err := checkURL(named); err != nil {
			return nil, fmt.Errorf("the resource_metadata of the server's challenge %w", err)
		}
		return []string{named}, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	root := outbound.Origin(u) + oauth.MetadataPath
	if path := strings.TrimRight(u.EscapedPath(), "/"); path != "" {
		return []string{root + path, root}, nil
	}
	return []string{root}, nil
}

// chosen returns the issuer to use.
func chosen(issuers []string, wanted, at string) (string, error) {
	switch {
	case len(issuers) == 0:
		return "", fmt.Errorf("%s names no authorization server", at)
	case wanted == "":
	case !slices.Contains(issuers, wanted):
		list := issuers[:min(len(issuers), 10)]
		for i := range list {
			list[i] = quoted(list[i])
		}
		return "", fmt.Errorf("the server does not name the issuer %s; it names %s", wanted, strings.Join(list, ", "))
	default:
		return wanted, nil
	}
	return issuers[0], nil
}

// describeIssuer reads the metadata of the issuer.
func (s *server) describeIssuer(ctx context.Context, client *outbound.Client, issuer string) error {
	if err := checkURL(issuer); err != nil {
		return fmt.Errorf("the issuer %s that the server names %w", quoted(issuer), err)
	}
	var missing, wrong error // the first of each
	for _, at := range issuerDocuments(issuer) {
		found, err := s.issuerIn(ctx, client, at, issuer)
		switch {
		case err == nil:
			s.issuer = found
			return nil
		case ctx.Err() != nil:
			return err
		case oauth.Missing(err):
			missing = cmp.Or(missing, err)
		default: // some servers answer a page for any address
			wrong = cmp.Or(wrong, err)
		}
	}
	return fmt.Errorf("the metadata of the issuer: %w", cmp.Or(wrong, missing))
}

// issuerDocuments returns where the metadata of an issuer may be: those of OAuth (RFC 8414) come before
// those of OpenID.
func issuerDocuments(issuer string) []string {
	list := oauth.Documents(issuer)
	slices.SortStableFunc(list, func(a, b string) int {
		rank := func(at string) int { return strings.Count(at, "/openid-configuration") }
		return rank(a) - rank(b)
	})
	return list
}

// issuerIn reads the metadata of the issuer in one document.
func (s *server) issuerIn(ctx context.Context, client *outbound.Client, at, issuer string) (*oauthex.AuthServerMeta, error) {
	body, err := oauth.Fetch(ctx, client, at)
	if err != nil {
		return nil, err
	}
	var found oauthex.AuthServerMeta
	if json.Unmarshal(body, &found) != nil {
		return nil, fmt.Errorf("%s is not the metadata of an issuer: %w", at, errNoJSON)
	}
	if strings.TrimSuffix(found.Issuer, "/") != strings.TrimSuffix(issuer, "/") { // many add a slash to the URL that they are given
		return nil, fmt.Errorf("%s says that the issuer is %s, and the server names %s", at, quoted(found.Issuer), issuer)
	}
	return &found, checkIssuer(&found)
}

// checkIssuer returns why nobody can log in at an issuer.
func checkIssuer(m *oauthex.AuthServerMeta) error {
	for _, e := range []struct {
		name, url string
		needed    bool
	}{
		{"authorization_endpoint", m.AuthorizationEndpoint, true},
		{"token_endpoint", m.TokenEndpoint, true},
		{"registration_endpoint", m.RegistrationEndpoint, false},
		{"revocation_endpoint", m.RevocationEndpoint, false},
	} {
		if e.url == "" && !e.needed {
			continue
		}
		if err := checkURL(e.url); err != nil {
			return fmt.Errorf("the %s of the issuer %s: it %w", e.name, m.Issuer, err)
		}
		// A browser goes wherever it is led: an issuer elsewhere must not have it ask a program on this machine for something.
		if isPlain(e.url) && !isPlain(m.Issuer) {
			return fmt.Errorf("the %s of the issuer %s: it must be an https:// URL, as that of the issuer is", e.name, m.Issuer)
		}
	}
	// A program that opens a URL may be a shell script, and some have run what a URL had in it.
	if strings.ContainsFunc(m.AuthorizationEndpoint, func(c rune) bool { return strings.ContainsRune("$`'\"\\(){}<>|;*!^", c) }) {
		return fmt.Errorf("the authorization_endpoint of the issuer %s has characters that mean something to a shell", m.Issuer)
	}
	if !slices.Contains(m.CodeChallengeMethodsSupported, "S256") {
		return fmt.Errorf("the issuer %s does not announce PKCE with S256, without which a login is not safe", m.Issuer)
	}
	if len(m.ResponseTypesSupported) > 0 && !slices.Contains(m.ResponseTypesSupported, "code") {
		return fmt.Errorf("the issuer %s does not give authorization codes", m.Issuer)
	}
	return nil
}

// isPlain reports whether a URL that checkURL accepts is one of this machine, without TLS. Schemes may have large letters.
func isPlain(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	return strings.EqualFold(scheme, "http")
}

// quoted returns a text of a stranger for a message.
func quoted(text string) string { return fmt.Sprintf("%q", outbound.Words(text, maxWords)) }
