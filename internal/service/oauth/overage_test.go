package oauth_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/orla-project/orla/internal/service/oauth"
	"github.com/orla-project/orla/internal/testing/issuer"
)

// SPEC N3, N1: a token that says that the groups of its caller are elsewhere, since there are too many for it, is refused: roles, toolsets and
// rules for those groups would not hold for the caller.
func TestN3GroupsThatAreElsewhere(t *testing.T) {
	i := issuer.New(t)
	elsewhere := map[string]any{"groups": "src1"}
	for name, c := range map[string]struct {
		claim   string // groups_claim
		claims  map[string]any
		refused bool
	}{
		"named":                        {"groups", map[string]any{"_claim_names": elsewhere, "_claim_sources": map[string]any{"src1": map[string]any{"endpoint": "https://graph.example"}}}, true},
		"named beside some":            {"groups", map[string]any{"_claim_names": elsewhere, "groups": []string{"dev"}}, true},
		"hasgroups":                    {"groups", map[string]any{"hasgroups": true}, true},
		"hasgroups as a text":          {"groups", map[string]any{"hasgroups": "true"}, true},
		"names that are not an object": {"groups", map[string]any{"_claim_names": "groups"}, true},
		"the beginning of a path":      {"realm.roles", map[string]any{"_claim_names": map[string]any{"realm": "src1"}}, true},
		"a claim with dots":            {"realm.roles", map[string]any{"_claim_names": map[string]any{"realm.roles": "src1"}}, true},
		"another claim":                {"roles", map[string]any{"_claim_names": elsewhere, "hasgroups": true, "roles": []string{"dev"}}, false},
		"hasgroups false":              {"groups", map[string]any{"hasgroups": false, "groups": []string{"dev"}}, false},
		"nobody asks for groups":       {"", map[string]any{"_claim_names": elsewhere, "hasgroups": true}, false},
		"a caller without a group":     {"groups", map[string]any{}, false},
		"names of no claim at all":     {"groups", map[string]any{"_claim_names": map[string]any{}}, false},
		"names that are not there":     {"groups", map[string]any{"_claim_names": nil}, false},
		"sources that nobody names":    {"groups", map[string]any{"_claim_sources": map[string]any{"src1": 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := started(t, i, func(s *oauth.Settings) { s.GroupsClaim = c.claim })
			claims := i.Claims(public + "/mcp")
			maps.Copy(claims, c.claims)
			got, err := v.Verify(t.Context(), "", i.Token(claims))
			if c.refused && !errors.Is(err, oauth.ErrInvalid) || !c.refused && err != nil {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
