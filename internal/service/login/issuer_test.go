package login

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// Issue 10.5: an issuer elsewhere cannot have the browser of a person ask a program on this machine for something.
func TestAnIssuerElsewhereDoesNotLeadToThisMachine(t *testing.T) {
	const far, near = "https://login.example.com", "http://127.0.0.1:8080"
	for name, c := range map[string]struct {
		issuer, page, tokens string
		want                 string // of the error; "" for none
	}{
		"all elsewhere":       {far, far, far, ""},
		"all on this machine": {near, near, near, ""},
		"a page elsewhere":    {near, far, near, ""},
		"a page here":         {far, near, far, "authorization_endpoint of the issuer " + far + ": it must be an https:// URL"},
		"a page at localhost": {far, "HTTP://localhost:22", far, "authorization_endpoint"},
		"large letters":       {"HTTPS://login.example.com", near, far, "authorization_endpoint"},
		"large letters there": {far, "HTTPS://login.example.com", far, ""},
		"tokens here":         {far, far, near, "token_endpoint"},
	} {
		err := checkIssuer(&oauthex.AuthServerMeta{
			Issuer: c.issuer, AuthorizationEndpoint: c.page + "/authorize", TokenEndpoint: c.tokens + "/token", CodeChallengeMethodsSupported: []string{"S256"},
		})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
