package oauth

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4/json"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/text/unicode/norm"

	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	maxName   = 256  // bytes of a subject or a group
	maxGroups = 1024 // of one caller
	maxShown  = 200  // bytes of a claim in the log

	latest = 1 << 37 // seconds: a time after which any token may expire
)

// check returns who has a token with this payload.
func (v *Verifier) check(payload []byte) (*Caller, *Refusal) {
	var claims map[string]any
	if json.Unmarshal(payload, &claims) != nil || claims == nil { // this decoder refuses a name that is there twice
		return nil, refusef("the token's claims are not a JSON object, or one is there twice")
	}
	if refused := v.checkIssued(claims); refused != nil {
		return nil, refused
	}
	from, expires, refused := checkTime(claims, v.now())
	if refused != nil {
		return nil, refused
	}
	subject, ok := claim(claims, v.settings.SubjectClaim).(string)
	if !ok || !isName(subject) {
		return nil, unusable(v.settings.SubjectClaim, "a text of printable characters in the Unicode form NFC")
	}
	if elsewhere(claims, v.settings.GroupsClaim) {
		r := refusef("the token does not have the caller's groups, and says that they are elsewhere, as if there are too many for it; let the issuer put fewer into it, such as those of this application alone")
		r.setup = v.settings.GroupsClaim + " elsewhere (_claim_names or hasgroups)"
		return nil, r
	}
	groups, ok := groupsIn(claim(claims, v.settings.GroupsClaim))
	if !ok {
		return nil, unusable(v.settings.GroupsClaim, "a text or a list of texts of printable characters in the Unicode form NFC")
	}
	scopes := scopesIn(claims)
	for _, scope := range v.settings.Scopes {
		if !slices.Contains(scopes, scope) && !shortScope(claims, scope) {
			return nil, &Refusal{
				Of: ErrScope, Reason: "the token needs " + strings.Join(v.settings.Scopes, " "),
				setup: "scopes " + shown(strings.Join(scopes, " ")),
			}
		}
	}
	return &Caller{Subject: subject, Groups: groups, Scopes: scopes, Expires: expires, from: from}, nil
}

// unusable refuses a token whose claim does not have the form that it needs.
func unusable(name, form string) *Refusal {
	r := refusef("the token's claim %s is not %s", name, form)
	r.setup = "no usable " + name
	return r
}

// checkIssued refuses a token that is of another issuer, for another server, or not an access token.
func (v *Verifier) checkIssued(claims map[string]any) *Refusal {
	if issuer, ok := claims["iss"].(string); !ok || issuer != v.settings.Issuer {
		r := refusef("the token is of another issuer")
		r.setup = "iss " + shown(claims["iss"])
		return r
	}
	if audience, ok := texts(claims["aud"]); !ok || !oauthex.MatchesResource(audience, v.audience) {
		r := refusef("the token is for another server")
		r.setup = "aud " + shown(claims["aud"])
		return r
	}
	// Keycloak and Cognito have the same type in the header of all their tokens.
	kind, _ := claims["typ"].(string)
	use, _ := claims["token_use"].(string)
	if kind != "" && !strings.EqualFold(kind, "Bearer") && !accessType(kind) || use != "" && use != "access" {
		return refusef("the token's claims say that it is not an access token")
	}
	// ID tokens (OpenID Connect Core §3.1.3.6) and logout tokens (Back-Channel Logout §2.4) have these. nonce is not one of them:
	// access tokens of older Keycloaks have it.
	for _, name := range []string{"at_hash", "c_hash", "s_hash", "events"} {
		if _, has := claims[name]; has {
			return refusef("the token's claim %s says that it is not an access token", name)
		}
	}
	if claims["cnf"] != nil {
		return refusef("the token is bound to a key (cnf), which is not supported")
	}
	return nil
}

// accessType reports whether a typ is that of an access token (RFC 9068 §2.1), or of any token.
func accessType(kind any) bool {
	text, ok := kind.(string)
	for _, one := range []string{"JWT", "at+jwt", "application/at+jwt", "application/jwt"} {
		if ok && strings.EqualFold(text, one) {
			return true
		}
	}
	return false
}

// checkTime returns from when to when a token is valid, unless that is not now.
func checkTime(claims map[string]any, now time.Time) (from, to time.Time, refused *Refusal) {
	expires, ok := claims["exp"].(float64)
	if !ok {
		return from, to, refusef("the token does not say when it expires")
	}
	at := float64(now.UnixMilli()) / 1000
	if expires+Skew.Seconds() <= at {
		return from, to, refusef("the token has expired")
	}
	if begins, has := claims["nbf"]; has {
		begins, ok := begins.(float64)
		if !ok || begins-Skew.Seconds() > at {
			return from, to, refusef("the token is not valid yet")
		}
		from = time.Unix(int64(max(begins, 0)), 0)
	}
	return from, time.Unix(int64(min(expires, latest)), 0), nil
}

// claim returns a claim by its name, or else by a path of names with dots between, such as
// realm_access.roles; nil if there is none.
func claim(claims map[string]any, name string) any {
	if value, has := claims[name]; has || name == "" {
		return value
	}
	first, rest, deeper := strings.Cut(name, ".")
	within, ok := claims[first].(map[string]any)
	if !deeper || !ok {
		return nil
	}
	return claim(within, rest)
}

// elsewhere reports whether a token says that a claim, or what it is a part of, has to be asked for elsewhere (OpenID Connect Core §5.6.2).
// Entra says so of more than 200 groups, in some flows by hasgroups. Without its groups a caller would be one to whom no role, toolset
// or rule of a group applies.
func elsewhere(claims map[string]any, name string) bool {
	if name == "" {
		return false
	}
	if has := claims["hasgroups"]; name == "groups" && has != nil && has != false {
		return true
	}
	names, ok := claims["_claim_names"].(map[string]any)
	if !ok {
		return claims["_claim_names"] != nil
	}
	first, _, _ := strings.Cut(name, ".")
	return names[name] != nil || names[first] != nil
}

// isName reports whether a text can be the name of a caller or a group: it is shown in the log. Rules compare names in NFC, so one in
// another form would be that of somebody else (RFC 7519 section 7.3).
func isName(text string) bool {
	return text != "" && norm.NFC.IsNormalString(text) && len(text) <= maxName && utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// groupsIn returns the groups in a claim, and whether it has the form of groups.
func groupsIn(value any) ([]string, bool) {
	if value == nil {
		return nil, true
	}
	groups, ok := texts(value)
	return groups, ok && len(groups) <= maxGroups && !slices.ContainsFunc(groups, func(g string) bool { return !isName(g) })
}

// scopesIn returns the scopes in the claim scope (RFC 9068 §2.2.3) and in scp, which Entra and Okta have.
func scopesIn(claims map[string]any) (scopes []string) {
	for _, name := range []string{"scope", "scp"} {
		given, _ := texts(claims[name])
		for _, text := range given {
			scopes = append(scopes, strings.Fields(text)...)
		}
	}
	return scopes
}

// shortScope reports whether the claim scp has the last part of a scope such as api://ID/NAME. Clients ask
// Entra for such a scope, and the token, whose audience is ID, has NAME.
func shortScope(claims map[string]any, scope string) bool {
	at := strings.LastIndexByte(scope, '/')
	if at < 0 || !strings.Contains(scope[:at], "://") {
		return false
	}
	given, _ := claims["scp"].(string)
	return slices.Contains(strings.Fields(given), scope[at+1:])
}

// texts returns a text or a list of texts as a list, and whether it is one of these.
func texts(value any) ([]string, bool) {
	switch value := value.(type) {
	case string:
		return []string{value}, true
	case []any:
		list := make([]string, 0, len(value))
		for _, one := range value {
			text, ok := one.(string)
			if !ok {
				return nil, false
			}
			list = append(list, text)
		}
		return list, true
	}
	return nil, false
}

// shown returns a claim for the log.
func shown(value any) string { return brief.Cut(fmt.Sprintf("%q", value), maxShown) }
