package httpfront

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
)

// Errors of Settings.Verify, in addition to auth.ErrInvalidToken.
var (
	// ErrInsufficientScope refuses a valid token that lacks a scope of Settings.Scopes.
	ErrInsufficientScope = errors.New("insufficient scope")
	// ErrUnavailable refuses a token that cannot be checked now.
	ErrUnavailable = errors.New("the token cannot be checked")
)

// GroupsKey is the key of TokenInfo.Extra for the groups of a caller, a []string.
const GroupsKey = "groups"

// retryToken is when a client is to try again with a token that cannot be checked.
const retryToken = 10 * time.Second

// bearerToken returns the token of a request.
func bearerToken(r *http.Request) (string, bool) {
	given := r.Header["Authorization"]
	if len(given) != 1 { // of two, another program might take the other one
		return "", false
	}
	fields := strings.Fields(given[0])
	if len(fields) != 2 || !strings.EqualFold(fields[0], "Bearer") {
		return "", false
	}
	return fields[1], true
}

// authenticate returns who makes a request. If nobody who may, it answers with what is missing.
func (s *Settings) authenticate(w http.ResponseWriter, r *http.Request) (*auth.TokenInfo, bool) {
	token, ok := bearerToken(r)
	if !ok {
		s.challenge(w, "", "")
		http.Error(w, "no bearer token: send the header Authorization: Bearer TOKEN", http.StatusUnauthorized)
		return nil, false
	}
	info, err := s.Verify(r.Context(), token, r)
	switch {
	case err == nil && info != nil:
		return info, true
	case errors.Is(err, auth.ErrInvalidToken):
		s.challenge(w, "invalid_token", err.Error())
		http.Error(w, err.Error(), http.StatusUnauthorized)
	case errors.Is(err, ErrInsufficientScope):
		s.challenge(w, "insufficient_scope", err.Error())
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.Is(err, ErrUnavailable):
		w.Header().Set("Retry-After", strconv.Itoa(int(retryToken.Seconds())))
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, "the token cannot be checked", http.StatusInternalServerError)
	}
	return nil, false
}

// challenge says in a refusal what a client needs (RFC 6750 §3, RFC 9728 §5.1). A request without a token
// has no error.
func (s *Settings) challenge(w http.ResponseWriter, problem, description string) {
	params := []string{`Bearer realm="orla"`}
	for _, one := range [][2]string{
		{"error", problem},
		{"error_description", description},
		{"scope", strings.Join(s.Scopes, " ")},
		{"resource_metadata", s.ResourceMetadata},
	} {
		if name, value := one[0], one[1]; value != "" {
			params = append(params, name+`="`+strings.Map(quotable, value)+`"`)
		}
	}
	w.Header().Set("WWW-Authenticate", strings.Join(params, ", "))
}

// quotable replaces the characters that a parameter of a challenge cannot have.
func quotable(r rune) rune {
	if r < ' ' || r > '~' || r == '"' || r == '\\' {
		return '?'
	}
	return r
}

// callerKey is the key of a request's *auth.TokenInfo in its context.
type callerKey struct{}

// withCaller returns a request of an authenticated caller.
func withCaller(r *http.Request, info *auth.TokenInfo) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, info))
}

// subject returns the authenticated caller of a request; "" without authentication.
func subject(r *http.Request) string {
	if info, _ := r.Context().Value(callerKey{}).(*auth.TokenInfo); info != nil {
		return info.UserID
	}
	return ""
}

// groupsOf returns the groups of the authenticated caller of a request; nil for none.
func groupsOf(r *http.Request) []string {
	if info, _ := r.Context().Value(callerKey{}).(*auth.TokenInfo); info != nil {
		groups, _ := info.Extra[GroupsKey].([]string)
		return groups
	}
	return nil
}
