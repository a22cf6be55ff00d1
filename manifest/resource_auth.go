package manifest

import (
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/address"
	"github.com/orla-project/orla/internal/secret"
)

// auth checks spec.auth and returns what it says (SPEC-TOOLS 1.2, 5.2).
func (d *declaration) auth(k authKeys) Auth {
	const at = "spec.auth"
	if !d.doc.Has(at) {
		return Auth{}
	}
	a := Auth{Profile: k.Profile, HeaderName: k.HeaderName, TokenURL: k.TokenURL, Scopes: k.Scopes}
	if a.Profile == "" {
		a.Profile = AuthBearer
	}
	if k.SecretRef == "" {
		d.doc.Faultf(at+".secretRef", "is required")
	} else {
		a.Secret = d.secretRef(at+".secretRef", k.SecretRef)
	}
	if d.doc.Has(at+".profile") && k.Profile == "" {
		return a // it is none: what it needs is not known
	}
	only := func(name string, profile AuthProfile) bool {
		if a.Profile != profile && d.doc.Has(at+"."+name) {
			d.doc.Faultf(at+"."+name, "is for profile %s, and this one is %s", profile, a.Profile)
		}
		return a.Profile == profile
	}
	if only("headerName", AuthAPIKey) {
		if err := CheckHeader(k.HeaderName); err != nil {
			d.doc.Faultf(at+".headerName", "%v", err)
		}
	}
	only("scopes", AuthOAuth2)
	if only("tokenURL", AuthOAuth2) {
		d.checkOAuth2(at, k, a.Secret)
	}
	return a
}

func (d *declaration) checkOAuth2(at string, k authKeys, ref secret.Ref) {
	if k.TokenURL == "" {
		d.doc.Faultf(at+".tokenURL", "is required for profile %s", AuthOAuth2)
	} else if err := CheckURL(k.TokenURL); err != nil {
		d.doc.Faultf(at+".tokenURL", "%v", err)
	}
	if strings.Contains(k.SecretRef, ":") && !ref.IsZero() {
		d.doc.Faultf(at+".secretRef", "must name no key: profile %s takes client_id and client_secret of the secret", AuthOAuth2)
	}
	for i, scope := range k.Scopes {
		if scope == "" || strings.ContainsFunc(scope, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
			d.doc.Faultf(at+".scopes"+indexed(i), "must be one scope, without spaces and quotes")
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
	notToken := func(c rune) bool { return notInName(c) && !strings.ContainsRune("!#$%&'*+^`|~", c) }
	switch {
	case name == "":
		return fmt.Errorf("is required for profile %s", AuthAPIKey)
	case strings.ContainsFunc(name, notToken):
		return errors.New("must be the name of a header, such as X-Api-Key: letters, digits and !#$%&'*+-.^_`|~")
	case slices.Contains(ownHeaders, textproto.CanonicalMIMEHeaderKey(name)):
		return fmt.Errorf("%s carries the request itself, and no credential", textproto.CanonicalMIMEHeaderKey(name))
	}
	return nil
}

// endpoint checks spec.endpoint and returns it as a URL with a scheme.
func (d *declaration) endpoint(text string, grpc bool) string {
	const key = "spec.endpoint"
	var err error
	switch {
	case text == "" && grpc:
		err = errors.New("is required: host:port, grpc://host:port (plain) or grpcs://host:port (TLS)")
	case text == "":
		err = errors.New("is required: an http or https URL")
	case grpc:
		text, err = grpcURL(text)
	default:
		err = CheckURL(text)
	}
	if err != nil {
		d.doc.Faultf(key, "%v", err)
	}
	return text
}

// CheckURL checks the http or https URL of a service. The error repeats none of it,
// since there may be a password in what is no URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return errors.New("is no URL; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be a URL that begins with http:// or https://")
	case u.User != nil:
		return errors.New("must hold no user and no password: auth is for these")
	case u.Hostname() == "":
		return errors.New("names no host; write it as https://host/path")
	case strings.Contains(text, "#"):
		return errors.New("must hold no fragment (#), which no server would see")
	}
	return checkDialled(u)
}

// checkDialled is CheckHost for what a tool is at, which must not be where no tool
// may ever reach, as far as that can be told without looking it up.
func checkDialled(u *url.URL) error {
	if err := CheckHost(u); err != nil {
		return err
	}
	if what := address.ForbiddenHost(u.Hostname()); what != "" {
		return fmt.Errorf("leads to an address that is %s, which no tool may reach", what)
	}
	return nil
}

// CheckHost checks what url.Parse leaves unchecked of a URL's host and port: that
// they can be dialled. The error repeats none of them.
func CheckHost(u *url.URL) error {
	switch n, err := strconv.Atoi(u.Port()); {
	case u.Port() != "" && (err != nil || n < 1 || n > 65535):
		return errors.New("has a port that is none: 1 to 65535")
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return errors.New("has a colon in its host; an IPv6 address is written in brackets, as in [::1]:443")
	case !strings.HasPrefix(u.Host, "[") && !nameable(u.Hostname()):
		return errors.New("has a host that no name and no address can be: letters, digits, - and _ between dots, 63 a part at most")
	}
	return nil
}

// nameable reports whether a host can be looked up: package net refuses others
// before it asks anybody. What is not ASCII is a name all the same, in another form.
func nameable(host string) bool {
	host = strings.TrimSuffix(host, ".")
	odd := func(r rune) bool {
		return r < utf8.RuneSelf && notInName(r) || r >= utf8.RuneSelf && !unicode.IsPrint(r)
	}
	for part := range strings.SplitSeq(host, ".") {
		if part == "" || len(part) > 63 && isASCII(part) || part[0] == '-' || part[len(part)-1] == '-' || strings.ContainsFunc(part, odd) {
			return false
		}
	}
	return len(host) <= 253 || !isASCII(host)
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
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
		return text, errors.New("is no host:port")
	case u.User != nil:
		return text, errors.New("must hold no user and no password: auth is for these")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || strings.ContainsAny(text, "?#"):
		return text, errors.New("must be a host and a port and nothing more")
	case u.Hostname() == "" || u.Port() == "":
		return text, errors.New("wants a host and a port: host:port")
	}
	at := url.URL{Scheme: scheme, Host: u.Host} // a zone of IPv6 is escaped again
	return at.String(), checkDialled(u)
}
