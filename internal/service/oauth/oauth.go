// Package oauth checks the access tokens of callers. It is the resource server's half of OAuth 2.1
// (SPEC N3): Orla accepts JSON Web Tokens that one issuer has made for it, and makes none.
//
// Its invariants: a token is accepted only if a key of the issuer verifies its signature, and only
// after all checks; no error and no line of the log has a token in it; a token is sent nowhere.
package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/service/outbound"
)

const (
	// MetadataPath is where the metadata of a protected resource is (RFC 9728 §3.1). Below it, under
	// the path of the resource, is the same.
	MetadataPath = "/.well-known/oauth-protected-resource"
	// resourcePath is the path of the protected resource.
	resourcePath = "/mcp"

	// DefaultSubjectClaim names the caller, if no other claim is set.
	DefaultSubjectClaim = "sub"

	// Skew is how far the clocks of Orla and of the issuer may differ.
	Skew = 30 * time.Second

	// maxToken bounds a token. Those with many groups have some 10 KiB.
	maxToken = 16 << 10

	// warnEvery is how often the log has a warning about tokens that the issuer has made and Orla
	// refuses.
	warnEvery = time.Minute
)

// algorithms are those that sign with a private key. With the others, whoever knows a public key
// could make tokens.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// The kinds of errors of Verify.
var (
	// ErrInvalid refuses a token for good.
	ErrInvalid = errors.New("invalid token")
	// ErrScope refuses a token that lacks a scope.
	ErrScope = errors.New("insufficient scope")
	// ErrUnavailable refuses a token that cannot be checked now.
	ErrUnavailable = errors.New("the token cannot be checked")
)

// Refusal is why a token is refused.
type Refusal struct {
	Of     error  // one of the errors above
	Reason string // without anything of the token
	setup  string // for the log: what the issuer has put into the token, where the setup may be wrong
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Of }

// Settings say which tokens are accepted.
type Settings struct {
	Issuer       string   // exactly as it names itself
	PublicURL    string   // where clients reach Orla; the resource is /mcp below it
	Audience     string   // whom tokens have to be for; "" is the resource
	Scopes       []string // that each token must have
	SubjectClaim string   // names the caller; "" is DefaultSubjectClaim
	GroupsClaim  string   // has the caller's groups; "" is none
}

// Equal reports whether both accept the same tokens.
func (s Settings) Equal(other Settings) bool {
	scopes := slices.Equal(s.Scopes, other.Scopes)
	s.Scopes, other.Scopes = nil, nil
	return scopes && s.base() == other.base()
}

// base returns the settings that can be compared.
func (s Settings) base() [5]string {
	return [5]string{s.Issuer, s.PublicURL, s.Audience, s.SubjectClaim, s.GroupsClaim}
}

// Resource returns the identifier of the protected resource: the address that clients use.
func (s Settings) Resource() string { return strings.TrimRight(s.PublicURL, "/") + resourcePath }

// MetadataURL returns where clients find the metadata.
func (s Settings) MetadataURL() string {
	return strings.TrimRight(s.PublicURL, "/") + MetadataPath + resourcePath
}

// Metadata describes the protected resource (RFC 9728 §2).
func (s Settings) Metadata() *oauthex.ProtectedResourceMetadata {
	return &oauthex.ProtectedResourceMetadata{
		Resource:               s.Resource(),
		AuthorizationServers:   []string{s.Issuer},
		ScopesSupported:        s.Scopes,
		BearerMethodsSupported: []string{"header"},
		ResourceName:           "Orla",
	}
}

// Caller is who has a token. It must not be changed.
type Caller struct {
	Subject string
	Groups  []string
	Scopes  []string
	Expires time.Time
	from    time.Time // when the token begins to be valid; zero if it does not say
}

// Verifier checks tokens. Its methods may be called from any goroutine.
type Verifier struct {
	settings Settings
	audience string
	keys     *keys
	accepted accepted
	checks   checks
	now      func() time.Time // the time of day, by which tokens end; all else is measured
	log      *slog.Logger

	mu     sync.Mutex // guards warned
	warned time.Time
}

// New returns a Verifier that has no keys yet; Run fetches them.
func New(settings Settings, client *outbound.Client, log *slog.Logger) *Verifier {
	return newVerifier(settings, func(ctx context.Context) ([]jose.JSONWebKey, error) {
		_, found, err := Discover(ctx, client, settings.Issuer)
		return found, err
	}, log)
}

func newVerifier(settings Settings, fetch func(context.Context) ([]jose.JSONWebKey, error), log *slog.Logger) *Verifier {
	if settings.SubjectClaim == "" {
		settings.SubjectClaim = DefaultSubjectClaim
	}
	audience := settings.Audience
	if audience == "" {
		audience = settings.Resource()
	}
	return &Verifier{settings: settings, audience: audience, keys: newKeys(settings.Issuer, fetch, log), checks: newChecks(runtime.NumCPU()), now: time.Now, log: log}
}

// Run fetches the issuer's keys, again and again, until ctx ends.
func (v *Verifier) Run(ctx context.Context) { v.keys.run(ctx) }

// Verify returns who has a token, which came from an address with a port. One that was not accepted before is checked in the turn of
// its network. The error is a *Refusal.
func (v *Verifier) Verify(ctx context.Context, from, token string) (*Caller, error) {
	hash, set := sha256.Sum256([]byte(token)), v.keys.set()
	if caller := v.accepted.find(hash, set, v.now()); caller != nil {
		return caller, nil
	}
	payload, refused := v.signed(ctx, turns.NetworkOf(from), token)
	if refused != nil {
		v.log.Debug("an access token was refused", "err", refused)
		return nil, refused
	}
	caller, refused := v.check(payload)
	if refused != nil {
		v.report(ctx, refused)
		return nil, refused
	}
	v.accepted.add(hash, set, caller)
	return caller, nil
}

// report logs why a token is refused that the issuer has made. If the setup may be wrong, it is a
// warning.
func (v *Verifier) report(ctx context.Context, refused *Refusal) {
	level := slog.LevelDebug
	if refused.setup != "" {
		v.mu.Lock()
		if now := time.Now(); now.Sub(v.warned) >= warnEvery {
			v.warned, level = now, slog.LevelWarn
		}
		v.mu.Unlock()
	}
	v.log.Log(ctx, level, "an access token was refused", "err", refused, "token_has", refused.setup)
}

// refusef makes a Refusal of an invalid token.
func refusef(format string, args ...any) *Refusal {
	return &Refusal{Of: ErrInvalid, Reason: fmt.Sprintf(format, args...)}
}

// signed returns the payload of a token that a key of the issuer has signed.
func (v *Verifier) signed(ctx context.Context, network, token string) (payload []byte, refused *Refusal) {
	var parsed *jose.JSONWebSignature
	if busy := v.checks.inTurn(ctx, network, func() { parsed, refused = parse(token) }); busy != nil || refused != nil {
		return nil, cmp.Or(busy, refused)
	}
	verify := func(candidates []jose.JSONWebKey) (payload []byte, busy *Refusal) {
		if len(candidates) == 0 {
			return nil, nil
		}
		busy = v.checks.inTurn(ctx, network, func() { payload = verifiedBy(parsed, candidates) })
		return payload, busy
	}
	header := parsed.Signatures[0].Protected
	payload, refused = v.keys.try(ctx, header.KeyID, header.Algorithm, verify)
	if refused != nil && errors.Is(refused, ErrUnavailable) && !v.claimsIssuer(parsed.UnsafePayloadWithoutVerification()) {
		return nil, refusef("the token is not of this server's issuer")
	}
	return payload, refused
}

// parse reads a token that is signed by an accepted algorithm.
func parse(token string) (*jose.JSONWebSignature, *Refusal) {
	if len(token) > maxToken {
		return nil, refusef("the token is longer than %d bytes", maxToken)
	}
	parsed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil || len(parsed.Signatures) != 1 || respelled(token) { // err may quote the token
		return nil, refusef("the token is not a JSON Web Token that is signed by an accepted algorithm")
	}
	header := parsed.Signatures[0].Protected
	if _, has := header.ExtraHeaders["crit"]; has {
		return nil, refusef("the token's header has extensions (crit), which are not supported")
	}
	if kind, has := header.ExtraHeaders[jose.HeaderType]; has && !accessType(kind) {
		return nil, refusef("the token's header says that it is not an access token (typ)")
	}
	return parsed, nil
}

// respelled reports whether a token differs from the text that was signed: the last letter of a part may have bits that mean nothing
// (RFC 4648 §3.5), and the library verifies what the parts mean.
func respelled(token string) bool {
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return true
		}
	}
	return false
}

// verifiedBy returns the payload of a token if one of the keys has signed it; otherwise nil.
func verifiedBy(parsed *jose.JSONWebSignature, candidates []jose.JSONWebKey) []byte {
	for i := range candidates {
		if payload, err := parsed.Verify(candidates[i].Key); err == nil {
			return payload
		}
	}
	return nil
}

// claimsIssuer reports whether an unverified payload names the issuer.
func (v *Verifier) claimsIssuer(payload []byte) bool {
	var said struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &said) == nil && said.Issuer == v.settings.Issuer
}
