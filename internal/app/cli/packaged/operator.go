package packaged

import (
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/packages"
)

// given says what will really hold for a package: what the configuration gives it by its name, if that is about this package, and
// otherwise what a package without permissions has (SPEC M7).
func given(candidate *packages.Candidate, cfg *config.Loaded) (lines []string) {
	name, source := candidate.Entry.Name, candidate.Entry.Source
	word := cfg.PackageOf(name, source)
	gives := word.Gives()
	if word.Permissions != nil && len(word.Permissions) == 0 {
		gives = append(gives, "permissions: none, in place of what it asks for")
	}
	if len(gives) > 0 {
		lines = append(lines, "Your configuration ("+cfg.OriginOf("packages").Text+") gives it:")
		for _, one := range gives {
			lines = append(lines, "  "+one)
		}
	} else if len(candidate.Asked) == 0 {
		lines = append(lines, "It sees its own files, and has no network.")
	}
	tool := candidate.Tool
	if low := discovery.Lower(&tool, word, cfg); low != nil {
		lines = append(lines, strings.Split(low.Error(), "\n")...)
	}
	for _, p := range cfg.Packages {
		if p.Name == name && !p.IsAbout(source) {
			lines = append(lines, "Your configuration ("+cfg.OriginOf("packages").Text+") is about a package "+name+" from "+p.Source+", so nothing of that holds for this one.")
		}
	}
	return lines
}

// isGivenMore reports whether the configuration gives a package more than it asks for, and nobody has agreed to that: there is no
// version of it yet.
func isGivenMore(candidate *packages.Candidate, cfg *config.Loaded) bool {
	return candidate.Before == nil && len(cfg.PackageOf(candidate.Entry.Name, candidate.Entry.Source).Gives()) > 0
}

// wantsMore says why somebody has to agree.
func wantsMore(candidate *packages.Candidate) string {
	if len(candidate.More) > 0 {
		return "asks for permissions"
	}
	return "is given permissions by your configuration"
}
