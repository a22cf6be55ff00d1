package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
)

// attach stores the session id that the server assigned; "" for none.
func (s *session) attach(id string) error {
	const most = 4 << 10
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' || len(id) > most {
			return final("the server gave an invalid session id: it must be visible ASCII, %d characters at most", most)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	return nil
}

// agree stores the protocol version in the result of initialize.
func (s *session) agree(result json.RawMessage) {
	if !rawjson.IsObject(result) {
		return
	}
	rawjson.Members(result, func(key []byte, value json.RawMessage) bool {
		if string(key) == "protocolVersion" {
			s.mu.Lock()
			defer s.mu.Unlock()
			if version := rawjson.String(value); isHeader([]byte(version)) {
				s.speaks = version
			}
			return false
		}
		return true
	})
}

// refused returns the error for an answer with a status other than 2xx.
func (s *session) refused(ctx context.Context, resp *http.Response, m message, c auth.Credentials) error {
	body, err := outbound.Body(io.LimitReader(resp.Body, maxRefusal), maxRefusal)
	if err != nil {
		body = nil // the status is enough
	}
	s.mu.Lock()
	inSession := s.id != ""
	s.mu.Unlock()
	status := resp.StatusCode
	switch {
	case status == http.StatusMisdirectedRequest && s.opts.Own:
		return s.end()
	case status == http.StatusNotFound && inSession: // "The server ... MUST respond to requests containing that session ID with HTTP 404" (Transports, Session Management)
		return s.end()
	case status == http.StatusUnauthorized && (asksForOAuth(resp.Header) || c.Login()):
		return s.wantsOAuth(resp, c)
	case status == http.StatusForbidden && c.Login():
		return s.lacksScope(resp, string(body), c)
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusTooManyRequests, status >= 500:
		return outbound.StatusFault("the server", resp, []byte(c.Redact(string(body))))
	}
	if status == http.StatusBadRequest && inSession && m.method != "ping" && !s.known(ctx, c) {
		return s.end()
	}
	if ctx.Err() != nil { // the session has ended
		return context.Cause(ctx)
	}
	if line := oneLine(body); line != nil && m.isRequest() {
		if _, ok := answers(line, m.id); ok {
			if _, answered, err := s.hand(ctx, line, m); answered || err != nil {
				return err
			}
		}
	}
	if m.method == "initialize" && s.speaksOldSSE(ctx, c) {
		return final("the server speaks HTTP+SSE, the transport of 2024-11-05, which Orla does not; name its endpoint of Streamable HTTP, which is often /mcp")
	}
	return outbound.StatusFault("the server", resp, []byte(c.Redact(string(body))))
}

// asksForOAuth reports whether a 401 has the URL of OAuth's protected resource metadata (RFC 9728,
// section 5.1).
func asksForOAuth(h http.Header) bool {
	for _, challenge := range h.Values("WWW-Authenticate") {
		challenge = strings.ToLower(challenge)
		if strings.Contains(challenge, "bearer") && strings.Contains(challenge, "resource_metadata=") {
			return true
		}
	}
	return false
}

// wantsOAuth is the error for a server that requires OAuth. The advice depends on whether a token
// was sent.
func (s *session) wantsOAuth(resp *http.Response, c auth.Credentials) error {
	f := outbound.StatusFault("the server", resp, nil)
	switch {
	case c.Same(auth.Credentials{}):
		f.Reason += ": this server asks for OAuth; run: orla login " + s.opts.name + "; or give spec.auth of the McpServer a token, or a client's id and secret (oauth2_client_credentials)"
	case c.Login():
		f.Reason += ": this server does not accept the tokens of the login; run: orla login " + s.opts.name
	default:
		f.Reason += ": this server asks for OAuth, and does not accept the credentials of spec.auth; renew the secret"
	}
	return f
}

// lacksScope is the error for a server that refuses a request of a login. It says which scopes the
// server asks for (RFC 6750, 3.1).
func (s *session) lacksScope(resp *http.Response, body string, c auth.Credentials) error {
	f := outbound.StatusFault("the server", resp, []byte(c.Redact(body)))
	challenges, _ := oauthex.ParseWWWAuthenticate(outbound.Challenges(resp.Header)) // one that cannot be read says nothing
	for _, challenge := range challenges {
		if challenge.Scheme != "bearer" || challenge.Params["error"] != "insufficient_scope" {
			continue
		}
		if scopes := outbound.Words(c.Redact(challenge.Params["scope"]), maxScopes); scopes != "" {
			f.Reason += ": it asks for the scopes " + scopes
		}
		f.Reason += "; run: orla login " + s.opts.name + ", with --scope for each scope that is needed"
		break
	}
	return f
}

// maxScopes bounds the scopes in an error in bytes.
const maxScopes = 200

// end records that the server does not know the session any more.
func (s *session) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return errOver
}

// known asks a server that has answered 400 whether it still knows the session. Some servers answer
// 400 for an unknown session, which looks like any other bad request.
func (s *session) known(ctx context.Context, c auth.Credentials) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := s.request(ctx, http.MethodPost, []byte(`{"jsonrpc":"2.0","id":"orla-ping","method":"ping"}`), c)
	if err != nil {
		return true
	}
	req.Header.Set("Content-Type", typeJSON)
	req.Header.Set("Accept", typeJSON+", "+typeSSE)
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return true // it could not be found out
	}
	_ = resp.Body.Close() // the status is enough
	return resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusNotFound
}

const probeTimeout = 5 * time.Second

// speaksOldSSE reports whether the server uses the older HTTP+SSE transport: its stream begins with
// an event that names an endpoint.
func (s *session) speaksOldSSE(ctx context.Context, c auth.Credentials) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := s.request(ctx, http.MethodGet, nil, c)
	if err != nil {
		return false
	}
	req.Header.Set("Accept", typeSSE)
	resp, err := s.opts.Client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }() // enough was read
	if resp.StatusCode != http.StatusOK || contentType(resp.Header) != typeSSE {
		return false
	}
	first, err := newEventReader(resp.Body, small, ctx.Done(), new(pace.Shared), func(int) error { return fmt.Errorf("%w", errTooLarge) }).next()
	return err == nil && first.name == "endpoint"
}

// statusError is the error for an answer to a GET that is not a stream.
type statusError struct {
	status int
	fault  *fault.Error
}

func (e *statusError) Error() string { return e.fault.Error() }

func (e *statusError) Unwrap() error { return e.fault }
