package artifact

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry"
)

// Schemes of addresses.
const (
	schemeHTTPS = "https://"
	schemeOCI   = "oci://"
)

// source returns the source of k's module.
func (s *Store) source(k key) (source, error) {
	pinned := digest.Digest(k.digest)
	if pinned != "" && (pinned.Validate() != nil || pinned.Algorithm() != digest.SHA256) {
		return nil, invalid("a module's digest is sha256: and 64 hexadecimal digits")
	}
	switch {
	case strings.HasPrefix(k.address, schemeHTTPS):
		return s.web(k, pinned)
	case strings.HasPrefix(k.address, schemeOCI):
		return s.registry(k, pinned)
	}
	return nil, invalid("a module's address begins with %s or %s", schemeHTTPS, schemeOCI)
}

func (s *Store) web(k key, pinned digest.Digest) (source, error) {
	u, err := url.Parse(k.address)
	switch {
	case err != nil || u.Hostname() == "": // the error quotes the address
		return nil, invalid("the module's address is not a URL")
	case u.User != nil:
		return nil, invalid("the module's address holds credentials, which it must not")
	}
	u.Fragment, u.RawFragment = "", ""
	return &web{store: s, key: k, url: u, pinned: pinned, known: s.kept.entry(k)}, nil
}

func (s *Store) registry(k key, pinned digest.Digest) (source, error) {
	name := strings.TrimPrefix(k.address, schemeOCI)
	host, _, _ := strings.Cut(name, "/")
	if strings.Contains(host, "@") {
		return nil, invalid("the module's address holds credentials, which it must not; name a secret in image_pull_secret")
	}
	ref, err := registry.ParseReference(name)
	if err != nil { // err quotes the address
		return nil, invalid("the module's address is not %sREGISTRY/REPOSITORY:TAG or …@sha256:DIGEST", schemeOCI)
	}
	if d, err := ref.Digest(); err == nil && pinned == "" {
		pinned = d
	}
	ref.Reference = cmp.Or(ref.Reference, "latest")
	r := &image{store: s, key: k, ref: ref, pinned: pinned}
	if pinned == "" {
		r.known = s.kept.entry(k)
	}
	return r, nil
}
