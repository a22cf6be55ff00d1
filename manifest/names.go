package manifest

import (
	"strings"

	"golang.org/x/mod/semver"
)

// MaxName is how long a tool's name may be; clients accept no more.
const MaxName = 64

// NotInName reports whether MCP does not allow a character in a tool's name.
func NotInName(c rune) bool {
	switch {
	case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		return false
	}
	return true
}

// AllowedName returns a name with _ for each character that MCP does not allow in it.
func AllowedName(name string) string {
	return strings.Map(func(c rune) rune {
		if NotInName(c) {
			return '_'
		}
		return c
	}, name)
}

// Dashed returns a name as it stands in the names of an McpServer's tools: with - for everything but letters,
// digits and dashes (SPEC-TOOLS 3.5).
func Dashed(name string) string {
	return dashes.Replace(AllowedName(name))
}

var dashes = strings.NewReplacer("_", "-", ".", "-")

// RuleNames returns what rules know a manifest by, which is of one manifest alone (SPEC-TOOLS 8.4): its name, whatever the case is, and for
// what has tools of its own, the form in which it stands before their names.
func RuleNames(t *Tool) []string {
	name := strings.ToLower(t.Name)
	if t.Kind != Capsule {
		return []string{name}
	}
	return []string{name, "\x00" + Dashed(name)}
}

// ValidName reports whether a tool can have the name as it is.
func ValidName(name string) bool {
	return name != "" && len(name) <= MaxName && !strings.ContainsFunc(name, NotInName)
}

// ValidVersion reports whether v is SemVer 2.0, all three numbers given.
func ValidVersion(v string) bool {
	core, _, _ := strings.Cut(v, "+")
	core, _, _ = strings.Cut(core, "-")
	return strings.Count(core, ".") == 2 && semver.IsValid("v"+v)
}

// CompareVersions orders versions by precedence. A leading v, which folders
// may have, is ignored.
func CompareVersions(a, b string) int {
	return semver.Compare("v"+strings.TrimPrefix(a, "v"), "v"+strings.TrimPrefix(b, "v"))
}
