package resource

import (
	"cmp"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/service/address"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// auth checks spec.auth and returns what it says (SPEC-TOOLS 1.2, 5.2).
func (d *Declaration) auth(k authKeys) manifest.Auth {
	const at = "spec.auth"
	if !d.Doc.Has(at) {
		return manifest.Auth{}
	}
	a := manifest.Auth{Profile: cmp.Or(k.Profile, manifest.AuthBearer), HeaderName: k.HeaderName, TokenURL: k.TokenURL, Scopes: k.Scopes}
	if k.SecretRef != "" {
		a.Secret = d.secretRef(at+".secretRef", k.SecretRef)
	} else if a.Profile != manifest.AuthLogin {
		d.Doc.Faultf(at+".secretRef", "is required")
	}
	if d.Doc.Has(at+".profile") && k.Profile == "" {
		return a // it is none: what it needs is not known
	}
	only := func(name string, profile manifest.AuthProfile) bool {
		if a.Profile != profile && d.Doc.Has(at+"."+name) {
			d.Doc.Faultf(at+"."+name, "is for profile %s, and this one is %s", profile, a.Profile)
		}
		return a.Profile == profile
	}
	if only("headerName", manifest.AuthAPIKey) {
		d.faultIf(at+".headerName", CheckHeader(k.HeaderName))
	}
	if a.Profile == manifest.AuthLogin || only("scopes", manifest.AuthOAuth2) {
		d.checkScopes(at, k.Scopes)
	}
	if only("tokenURL", manifest.AuthOAuth2) {
		d.checkOAuth2(at, k, a.Secret)
	}
	return a
}

// serverAuth checks spec.auth of an McpServer and returns what it says.
func (d *Declaration) serverAuth(k serverAuthKeys) manifest.Auth {
	const at = "spec.auth"
	a := d.auth(k.shared())
	switch {
	case a.Profile == manifest.AuthLogin:
		d.checkLogin(at, k)
		a.ClientID, a.Issuer = k.ClientID, k.Issuer
	case a.Profile != "":
		for _, name := range []string{".clientID", ".issuer"} {
			if d.Doc.Has(at + name) {
				d.Doc.Faultf(at+name, "is for profile %s, and this one is %s", manifest.AuthLogin, a.Profile)
			}
		}
	}
	return a
}

// checkLogin checks the keys of a server that a person logs in to.
func (d *Declaration) checkLogin(at string, k serverAuthKeys) {
	if k.SecretRef != "" && k.ClientID == "" {
		d.Doc.Faultf(at+".secretRef", "is the secret of a client, which needs clientID")
	}
	if d.Doc.Has(at+".clientID") && (k.ClientID == "" || strings.ContainsFunc(k.ClientID, func(c rune) bool { return c < ' ' || c > '~' })) {
		d.Doc.Faultf(at+".clientID", "must be the id of a client at the issuer: visible ASCII")
	}
	if d.Doc.Has(at + ".issuer") {
		d.faultIf(at+".issuer", address.CheckURL(k.Issuer))
	}
}

func (d *Declaration) checkOAuth2(at string, k authKeys, ref secret.Ref) {
	if k.TokenURL == "" {
		d.Doc.Faultf(at+".tokenURL", "is required for profile %s", manifest.AuthOAuth2)
	} else {
		d.faultIf(at+".tokenURL", address.CheckURL(k.TokenURL))
	}
	if strings.Contains(k.SecretRef, ":") && !ref.IsZero() {
		d.Doc.Faultf(at+".secretRef", "must name no key: profile %s takes client_id and client_secret of the secret", manifest.AuthOAuth2)
	}
}

// checkScopes checks a list of scopes.
func (d *Declaration) checkScopes(at string, scopes []string) {
	for i, scope := range scopes {
		if scope == "" || strings.ContainsFunc(scope, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
			d.Doc.Faultf(at+".scopes"+keys.Indexed(i), "must be one scope, without spaces and quotes")
		}
	}
}

// ownHeaders are those that carry the request itself, and no credential.
var ownHeaders = []string{
	"Host", "Content-Length", "Content-Type", "Content-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Expect",
}

// CheckHeader checks the name of a header that carries a credential.
func CheckHeader(name string) error {
	notToken := func(c rune) bool { return manifest.NotInName(c) && !strings.ContainsRune("!#$%&'*+^`|~", c) }
	switch {
	case name == "":
		return fmt.Errorf("is required for profile %s", manifest.AuthAPIKey)
	case strings.ContainsFunc(name, notToken):
		return errors.New("must be the name of a header, such as X-Api-Key: letters, digits and !#$%&'*+-.^_`|~")
	case slices.Contains(ownHeaders, textproto.CanonicalMIMEHeaderKey(name)):
		return fmt.Errorf("%s carries the request itself, and no credential", textproto.CanonicalMIMEHeaderKey(name))
	}
	return nil
}

// endpoint checks spec.endpoint and returns it as a URL with a scheme.
func (d *Declaration) endpoint(text string, grpc bool) string {
	var err error
	switch {
	case text == "" && grpc:
		err = errors.New("is required: host:port, grpc://host:port (plain) or grpcs://host:port (TLS)")
	case text == "":
		err = errors.New("is required: an http or https URL")
	case grpc:
		text, err = grpcURL(text)
	default:
		err = address.CheckURL(text)
	}
	d.faultIf("spec.endpoint", err)
	return text
}

// grpcURL returns the endpoint of a gRPC service as grpc:// or grpcs://, TLS
// unless it says otherwise.
func grpcURL(text string) (string, error) {
	scheme, rest, given := strings.Cut(text, "://")
	if !given {
		scheme, rest = "grpcs", text
	}
	switch scheme = strings.ToLower(scheme); scheme {
	case "grpc", "grpcs":
	case "http", "https":
		return text, fmt.Errorf("of type grpc must be host:port, grpc://host:port (plain) or grpcs://host:port (TLS), not %s://", scheme)
	default:
		return text, errors.New("must be host:port, grpc://host:port (plain) or grpcs://host:port (TLS)")
	}
	u, err := url.Parse(scheme + "://" + rest)
	switch {
	case err != nil, strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return text, errors.New("is not a host:port")
	case u.User != nil:
		return text, errors.New("must not have a user or a password: use auth")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || strings.ContainsAny(text, "?#"):
		return text, errors.New("must be a host and a port and nothing more")
	case u.Hostname() == "" || u.Port() == "":
		return text, errors.New("wants a host and a port: host:port")
	}
	at := url.URL{Scheme: scheme, Host: u.Host} // a zone of IPv6 is escaped again
	return at.String(), address.CheckDialled(u)
}
