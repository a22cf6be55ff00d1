package config

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/internal/service/oauth"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// OAuthConfig says which access tokens are accepted.
type OAuthConfig struct {
	Issuer       string   `json:"issuer,omitempty" jsonschema:"Authorization server whose access tokens are accepted, exactly as it names itself, such as https://login.example.com/realms/main. Default: none." sample:"https://login.example.com/realms/main"`
	PublicURL    string   `json:"public_url,omitempty" jsonschema:"Where clients reach this Orla, without /mcp, such as https://orla.example.com. Required with an issuer." sample:"https://orla.example.com"`
	Audience     string   `json:"audience,omitempty" jsonschema:"Audience that a token must be for. Default: public_url with /mcp."`
	Scopes       []string `json:"scopes,omitempty" jsonschema:"Scopes that a token must have. Default: none."`
	SubjectClaim string   `json:"subject_claim,omitempty" jsonschema:"Claim that names the caller; a name, or a path such as a.b. Default sub."`
	GroupsClaim  string   `json:"groups_claim,omitempty" jsonschema:"Claim with the caller's groups; a name, or a path such as realm_access.roles. Default: none, and no groups."`
	// ClientID and ClientSecret are those of the page of the console.
	ClientID     string `json:"console_client_id,omitempty" jsonschema:"Client that the authorization server knows the console by, with the redirect URL /console/login at each address of the console. With it, people log in to the console there. Default: none, and they paste a token."`
	ClientSecret string `json:"console_client_secret_file,omitempty" jsonschema:"File with the secret of that client, relative to this file's folder. Default: none, for a public client."`
}

// Settings returns which tokens are accepted.
func (o OAuthConfig) Settings() oauth.Settings {
	return oauth.Settings{
		Issuer: o.Issuer, PublicURL: o.PublicURL, Audience: o.Audience, Scopes: o.Scopes,
		SubjectClaim: o.SubjectClaim, GroupsClaim: o.GroupsClaim,
	}
}

// ConsoleSecretFile returns the path of the file with the secret of the console's client; "" for none.
func (c *Loaded) ConsoleSecretFile() string {
	path := c.Auth.OAuth.ClientSecret
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.File), path)
}

// Required reports whether a caller over HTTP needs a token.
func (a AuthConfig) Required() bool { return len(a.Tokens) > 0 || a.OAuth.Issuer != "" }

// oauth checks auth.oauth, which can only be set in a file.
func (v *verdict) oauth() {
	o, key := v.Auth.OAuth, "auth.oauth"
	if o.Issuer == "" {
		named := v.doc != nil && v.doc.Has(key+".issuer") // but empty, as of a template: who writes it wants tokens to be checked
		if named || o.PublicURL != "" || o.Audience != "" || len(o.Scopes) > 0 || o.SubjectClaim != "" || o.GroupsClaim != "" || o.ClientID != "" || o.ClientSecret != "" {
			v.doc.Faultf(key+".issuer", "is required")
		}
		return
	}
	if err := oauth.CheckIssuer(o.Issuer); err != nil {
		v.doc.Faultf(key+".issuer", "%v", err)
	}
	if err := publicURL(o.PublicURL); err != nil {
		v.doc.Faultf(key+".public_url", "%v", err)
	}
	if o.ClientSecret != "" && o.ClientID == "" {
		v.doc.Faultf(key+".console_client_id", "is required with a secret")
	}
	for name, text := range map[string]string{"issuer": o.Issuer, "console_client_id": o.ClientID, "audience": o.Audience, "subject_claim": o.SubjectClaim, "groups_claim": o.GroupsClaim} {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			v.doc.Faultf(key+"."+name, "must not contain spaces or control characters")
		}
	}
	for _, scope := range o.Scopes {
		if scope == "" || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			v.doc.Faultf(key+".scopes", "%q is not a scope: it must be ASCII without spaces and quotes, one scope for each item", scope)
		}
	}
}

// publicURL returns what is wrong with the address that clients use.
func publicURL(text string) error {
	if text == "" {
		return errors.New("is required with an issuer: where clients reach this Orla, such as https://orla.example.com")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || strings.ContainsAny(text, "?#\"\\ "):
		return errors.New("is not an address such as https://orla.example.com")
	case strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/mcp"):
		return errors.New("must not end with /mcp, which Orla adds")
	}
	return address.CheckHost(u)
}

// documentURL returns what is wrong with the address of a client id metadata document.
func documentURL(text string) error {
	u, err := url.Parse(text)
	odd := strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
	if err != nil || odd || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || strings.Trim(u.Path, "/") == "" {
		return errors.New("must be an https:// URL with a path, such as https://example.com/orla-client.json")
	}
	return nil
}

// IsIssued reports whether a name is one of those that access tokens have.
func IsIssued(name string) bool { return strings.HasPrefix(name, httpfront.IssuedPrefix) }
