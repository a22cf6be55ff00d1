package packaged

import (
	"context"
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/manifest/keys"
)

// given says what will really hold for a package: what the configuration gives it by its name, if that is about this package, and
// otherwise what a package without permissions has (SPEC M7).
func given(candidate offer, cfg *config.Loaded) (lines []string) {
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
		lines = append(lines, "It runs in the image "+name+" ("+candidate.size+"), which a container engine or a cluster pulls, with its logins.")
		if pinned := candidate.pinned(); pinned == "" {
			lines = append(lines, "  Its digest is not known here. What its tag names later may be another image.")
		} else if pinned != name {
			lines = append(lines, "  It is always the one that has the digest "+candidate.Entry.Image+".")
		}
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

// offer is a package that somebody is asked about.
type offer struct {
	*packages.Candidate
	size  string // of the image that it names, or why it is not known
	loose bool   // the digest of that image is not known
}

// offer finds the digest of the image that a package names by a tag, so that the image that was agreed to is the one that runs (SPEC M7).
// One that is in the lock stays. keep says that the lock may not get one. An image that is too large for this machine is an error: whoever
// starts it pulls it later.
func (c command) offer(ctx context.Context, p *place, candidate *packages.Candidate, keep bool) (offer, error) {
	o := offer{Candidate: candidate}
	name := candidate.Tool.Isolation.Image
	if name == "" {
		return o, nil
	}
	known := candidate.KnownImage()
	made := bundle.Made{Image: name}
	if candidate.IsOfLock() && known != "" {
		made.Image = keys.PinnedImage(name, known)
	}
	size, err := made.Measure(ctx, nil)
	switch {
	case ctx.Err() != nil:
		return o, context.Cause(ctx)
	case err != nil:
		o.size = "nobody here knows how large it is: " + err.Error()
		if known != "" {
			made.Image = keys.PinnedImage(name, known)
		} else if engine := engineOf(p.cfg); engine != "" {
			_ = made.Pin(ctx, engine) // without a digest it is a question
		}
	case size > int64(p.cfg.MaxEnvironment):
		return o, tooLarge(name, size, int64(p.cfg.MaxEnvironment))
	default:
		o.size = bundle.InMiB(size)
	}
	if strings.Contains(name, "@") {
		return o, nil // the package itself fixes it
	}
	_, digest, fixed := strings.Cut(made.Image, "@")
	if o.loose = !fixed || keep && known == ""; o.loose {
		return o, nil
	}
	return o, candidate.FixImage(ctx, digest)
}

// pinned is the name of the image of a package by its digest; "" if that is not known.
func (o offer) pinned() string {
	if o.Tool.Isolation.Image == "" || o.loose {
		return ""
	}
	return keys.PinnedImage(o.Tool.Isolation.Image, o.Entry.Image)
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
