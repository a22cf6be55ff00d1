package packaged

import (
	"context"
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/bundle"
)

// given says what will really hold for a package: what the configuration gives it by its name, if that is about this package, and
// otherwise what a package without permissions has (SPEC M7).
// image says how large the image is that the package names.
func given(candidate *packages.Candidate, cfg *config.Loaded, image string) (lines []string) {
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
	if name := candidate.Tool.Isolation.Image; name != "" {
		lines = append(lines, "It runs in the image "+name+" ("+image+"), which a container engine or a cluster pulls, with its logins. What its tag names later may be larger.")
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

// sizeOf says how large the image is that a package names, which may be too much for this machine. Whoever starts it pulls it later.
func sizeOf(ctx context.Context, candidate *packages.Candidate, cfg *config.Loaded) (string, error) {
	made := bundle.Made{Image: candidate.Tool.Isolation.Image}
	if made.Image == "" {
		return "", nil
	}
	size, err := made.Measure(ctx, nil)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "nobody here knows how large it is: " + err.Error(), nil //nolint:nilerr // the question says so
	case size > int64(cfg.MaxEnvironment):
		return "", tooLarge(made.Image, size, int64(cfg.MaxEnvironment))
	}
	return bundle.InMiB(size), nil
}

// tooLarge is the error for an image that is not pulled.
func tooLarge(image string, size, most int64) error {
	return fmt.Errorf("the image %s has %s, and an image may have at most %s: max_environment in orla.yaml; nothing was changed", image, bundle.InMiB(size), bundle.InMiB(most))
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
