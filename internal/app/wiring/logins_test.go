package wiring

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/manifest"
)

// SPEC N3: the client of a server's file goes to the issuer of that file and to no other that a command names.
func TestN3TheClientOfAFileIsForItsIssuer(t *testing.T) {
	const mine, other = "https://login.example.com", "https://other.example.com"
	cfg := &config.Loaded{}
	cfg.StateDir = t.TempDir()
	for name, c := range map[string]struct {
		file    manifest.Auth
		given   login.Options
		refused bool
	}{
		"another issuer":                      {manifest.Auth{Profile: manifest.AuthLogin, ClientID: "orla", Issuer: mine}, login.Options{Issuer: other}, true},
		"another spelling of the issuer":      {manifest.Auth{Profile: manifest.AuthLogin, ClientID: "orla", Issuer: mine}, login.Options{Issuer: mine + "/"}, true},
		"the same issuer":                     {manifest.Auth{Profile: manifest.AuthLogin, ClientID: "orla", Issuer: mine}, login.Options{Issuer: mine}, false},
		"another issuer and its client":       {manifest.Auth{Profile: manifest.AuthLogin, ClientID: "orla", Issuer: mine}, login.Options{Issuer: other, ClientID: "theirs"}, false},
		"an issuer of a file without clients": {manifest.Auth{Profile: manifest.AuthLogin, Issuer: mine}, login.Options{Issuer: other}, false},
	} {
		far := manifest.Tool{Name: "far", Kind: manifest.Capsule}
		far.Runtime.Remote = &manifest.Remote{Endpoint: "http://127.0.0.1:1/mcp", Auth: c.file}
		_, err := Login(t.Context(), cfg, manifest.Result{}, far, c.given)
		if err == nil || strings.Contains(err.Error(), "clientID of spec.auth is for the issuer "+mine) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
