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
	if image := candidate.Tool.Isolation.Image; image != "" {
		lines = append(lines, "It runs in the image "+image+", which a container engine or a cluster pulls, with its logins and without a bound of its size.")
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

// isGivenMore reports whether somebody has to agree to what no permission says: to an image, of which each version may name another, and
// to what the configuration gives a package that there is no version of here yet.
func isGivenMore(candidate *packages.Candidate, cfg *config.Loaded) bool {
	return candidate.Tool.Isolation.Image != "" || candidate.IsFirst() && len(cfg.PackageOf(candidate.Entry.Name, candidate.Entry.Source).Gives()) > 0
}

// wantsMore says why somebody has to agree.
func wantsMore(candidate *packages.Candidate) string {
	if len(candidate.More) > 0 {
		return "asks for permissions"
	}
	if candidate.Tool.Isolation.Image != "" {
		return "has an image pulled"
	}
	return "is given permissions by your configuration"
}
