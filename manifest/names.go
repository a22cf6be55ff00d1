package manifest

import (
	"strings"

	"golang.org/x/mod/semver"
)

// maxName is how long a tool's name may be; clients accept no more.
const maxName = 64

// NotInName reports whether MCP does not allow a character in a tool's name.
func NotInName(c rune) bool {
	switch {
	case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		return false
	}
	return true
}

// validName reports whether a tool can have the name as it is.
func validName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, NotInName)
}

// validVersion reports whether v is SemVer 2.0, all three numbers given.
func validVersion(v string) bool {
	core, _, _ := strings.Cut(v, "+")
	core, _, _ = strings.Cut(core, "-")
	return strings.Count(core, ".") == 2 && semver.IsValid("v"+v)
}

// compareVersions orders versions by precedence. A leading v, which folders
// may have, is ignored.
func compareVersions(a, b string) int {
	return semver.Compare("v"+strings.TrimPrefix(a, "v"), "v"+strings.TrimPrefix(b, "v"))
}
