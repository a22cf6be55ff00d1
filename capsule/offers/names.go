package offers

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/orla-project/orla/manifest"
)

// maxName is the longest name that clients accept (SPEC A3).
const maxName = 64

// scheme says how clients call what a capsule offers.
type scheme struct {
	own    string              // the capsule's name, for an item without a name
	prefix string              // before the names of the others
	fit    func(string) string // replaces what a name must not contain
	hash   string              // stands before a hash
}

// schemeOf returns the scheme for a number of things.
func schemeOf(t manifest.Tool, things int) scheme {
	s := scheme{own: t.Name, fit: manifest.AllowedName, hash: "_"}
	switch {
	case t.Runtime.Generated:
		s.prefix, s.fit, s.hash = manifest.Dashed(t.Name)+"--", manifest.Dashed, "-"
	case t.Runtime.ToolPrefix != nil:
		s.prefix = *t.Runtime.ToolPrefix
	case things > 1:
		s.prefix = t.Name + "__"
	}
	return s
}

func (s scheme) full(name string) string {
	if name == "" {
		return s.own
	}
	return s.prefix + name
}

// namesOf maps the capsule's name of each thing to the name that clients use. A single
// thing keeps its name; several get the capsule's name as a prefix (SPEC D7). Those of an
// McpServer are always SERVER--NAME (SPEC-TOOLS 3.5).
//
// A name that is too long, or that two things would share, ends in a hash of the full name,
// so that it does not depend on the order of the list. If one of the two needs no change to
// fit, it keeps the name without a hash.
func namesOf(t manifest.Tool, own []string) map[string]string {
	s := schemeOf(t, len(own))
	same := map[string]int{}
	for _, name := range own {
		same[s.fit(s.full(name))]++
	}
	names := make(map[string]string, len(own))
	taken := map[string]bool{}
	for _, name := range own {
		plain := s.fit(s.full(name))
		if len(plain) <= maxName && (same[plain] == 1 || plain == s.full(name)) {
			names[name], taken[plain] = plain, true
		}
	}
	for _, name := range own {
		if names[name] == "" {
			names[name] = s.hashed(s.full(name), taken)
		}
	}
	return names
}

// hashed returns a name that ends in a hash of the full name and is not taken.
func (s scheme) hashed(full string, taken map[string]bool) string {
	plain := s.fit(full)
	sum := sha256.Sum256([]byte(full))
	for digits := 4; ; digits++ { // a name is taken only if somebody chose it to collide
		suffix := s.hash + hex.EncodeToString(sum[:digits])
		name := plain[:min(len(plain), maxName-len(suffix))] + suffix
		if !taken[name] || digits == len(sum)-1 {
			taken[name] = true
			return name
		}
	}
}
