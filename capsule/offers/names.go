package offers

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// maxName is the longest name that clients accept (SPEC A3).
const maxName = 64

// scheme is how the things that a capsule offers are called by clients.
type scheme struct {
	own    string              // the capsule's name, for what has none
	prefix string              // before the names of the others
	fit    func(string) string // leaves what may be in a name
	hash   string              // stands before a hash
}

// schemeOf is the scheme for so many things.
func schemeOf(t manifest.Tool, things int) scheme {
	s := scheme{own: t.Name, fit: allowed, hash: "_"}
	switch {
	case t.Runtime.Generated:
		s.prefix, s.fit, s.hash = dashed(t.Name)+"--", dashed, "-"
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

// namesOf gives each thing that a capsule offers, by its own name, the name that
// clients use: a single one its own, several the capsule's name before theirs
// (SPEC D7); those of an McpServer are SERVER--NAME in any case (SPEC-TOOLS 3.5).
// One that would be too long, or the same as another's, ends in a hash
// of its own, so that it stays what it is in whatever order they are listed; of
// those that would be the same, the one that is written so keeps the name.
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

// allowed replaces what MCP does not allow in names.
func allowed(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.', r == '-':
			return r
		}
		return '_'
	}, name)
}

// dashed leaves letters, digits and dashes in a name.
func dashed(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(allowed(name))
}

// hashed is a name with a hash of it at its end, that is not taken.
func (s scheme) hashed(full string, taken map[string]bool) string {
	plain := s.fit(full)
	sum := sha256.Sum256([]byte(full))
	for digits := 4; ; digits++ { // one that is taken is a name made to be
		suffix := s.hash + hex.EncodeToString(sum[:digits])
		name := plain[:min(len(plain), maxName-len(suffix))] + suffix
		if !taken[name] || digits == len(sum)-1 {
			taken[name] = true
			return name
		}
	}
}
