package packaged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/packages"
	"github.com/orla-project/orla/internal/packages/bundle"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/internal/packages/registry"
	"github.com/orla-project/orla/manifest"
)

// locked brings a package exactly as the lock has it.
func (c command) locked(ctx context.Context, p *place, s *packages.Session, entry lockfile.Package, w wanted) (*packages.Candidate, error) {
	if err := p.mayFetch(entry.Source); err != nil {
		return nil, err
	}
	if entry.Source.Kind != lockfile.Bundle && entry.Source.Kind != lockfile.Server {
		return s.Locked(ctx, entry)
	}
	w.entry, w.exact = &entry, true
	if entry.Source.Server == "" {
		return c.fromBundle(ctx, s, entry.Source, entry.Source.URL, entry.Name, w)
	}
	found, err := c.find(ctx, p, entry.Source.Registry, entry.Source.Server, entry.Version)
	if err != nil {
		return nil, err
	}
	return c.fromServer(ctx, p, s, found, w)
}

// newerMade is newer for what Orla makes itself.
func (c command) newerMade(ctx context.Context, p *place, s *packages.Session, before lockfile.Package, w wanted) (*packages.Candidate, error) {
	w.entry = &before
	if before.Source.Server == "" {
		return c.fromBundle(ctx, s, lockfile.Source{Kind: lockfile.Bundle, URL: before.Source.URL}, before.Source.URL, before.Name, w)
	}
	found, err := c.find(ctx, p, before.Source.Registry, before.Source.Server, "")
	if err != nil {
		return nil, err
	}
	if server := found.Server; server != nil && manifest.ValidVersion(server.Version) && !isNewer(server.Version, before.Version) {
		return nil, nil //nolint:nilnil // there is nothing newer
	}
	return c.fromServer(ctx, p, s, found, w)
}

// mayFetch returns an error for a repository of this machine that a lock names and that git is not to open: git reads
// its configuration, and whoever brought the lock may have brought the repository.
func (p *place) mayFetch(source lockfile.Source) error {
	for _, text := range []string{source.URL, source.Registry} {
		if !strings.HasPrefix(text, "file://") {
			continue
		}
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		path, err := filepath.EvalSymlinks(u.Path)
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		project, err := filepath.EvalSymlinks(filepath.Dir(p.store.Lock))
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(stat.Uid) != os.Geteuid() || permission.Below(path, project) {
			return fmt.Errorf("%s is not opened because a lock names it, as it is in the folder of the lock or belongs to another user; orla install %[1]s names it", text)
		}
	}
	return nil
}

// given returns the answers for a package that is made: those of the command line, and those of before. kept says that
// the secret ones of before stay as they are in the Secret that is there.
func (w wanted) given(ctx context.Context, s *packages.Session) (answers map[string]string, kept bool, err error) {
	if answers, err = w.answers(); err != nil || w.entry == nil || w.entry.Source.Made == nil {
		return answers, false, err
	}
	made := w.entry.Source.Made
	isGiven := func(key string) bool { return answers[key] != "" }
	kept = len(made.Secrets) > 0 && !slices.ContainsFunc(made.Secrets, isGiven) && s.HasSecret(ctx, w.entry)
	for key, answer := range made.Answers {
		answers[key] = cmp.Or(answers[key], answer)
	}
	for _, key := range made.Secrets {
		if kept {
			answers[key] = bundle.Kept
		}
	}
	return answers, kept, nil
}

// finish adds to a Candidate what Orla made it with, so that the same can be made again.
func (c command) finish(candidate *packages.Candidate, s *packages.Session, made *bundle.Made, answers map[string]string, kept bool, at time.Time) (*packages.Candidate, error) {
	with := &lockfile.Made{Answers: map[string]string{}}
	for _, q := range made.Questions {
		answer := answers[q.Key]
		switch {
		case answer == "":
		case !q.Secret:
			with.Answers[q.Key] = answer
		case kept && answer != bundle.Kept:
			candidate.Discard()
			return nil, fmt.Errorf("it asks for the further secret %q: --set has to answer all secrets again", q.Key)
		default:
			with.Secrets = append(with.Secrets, q.Key)
		}
	}
	slices.Sort(with.Secrets)
	if !at.IsZero() {
		with.At = at.UTC().Format(time.RFC3339)
	}
	if before := s.Lock.Find(candidate.Entry.Name, candidate.Entry.Version); before != nil && before.Digest == candidate.Entry.Digest && before.Source.Made != nil {
		with.At = before.Source.Made.At // nothing else was chosen
	}
	if len(with.Answers)+len(with.Secrets) > 0 || with.At != "" {
		candidate.Entry.Source.Made = with
	}
	if candidate.Secret = made.Secrets; kept {
		candidate.Secret = nil
	}
	return candidate, nil
}

// make makes a Candidate of what fill writes.
func (w wanted) make(ctx context.Context, s *packages.Session, source lockfile.Source, from packages.From, fill func(dir string) error) (*packages.Candidate, error) {
	if w.exact {
		return s.Remade(ctx, *w.entry, fill)
	}
	return s.Made(ctx, source, from, fill)
}

// outdated returns the highest version that the source of an entry has, if it is newer; "" otherwise. The error says why that
// is not known, or what the registry says of the version that is installed. asked is false if nobody can say.
func (c command) outdated(ctx context.Context, p *place, e lockfile.Package) (newest string, asked bool, err error) {
	if err := p.mayFetch(e.Source); err != nil {
		return "", true, err
	}
	switch {
	case e.Source.Server != "":
		newest, err = c.newestServer(ctx, p, e)
		return newest, true, err
	case e.Source.Kind != lockfile.Git:
		return "", false, nil
	}
	git := p.store.Git
	git.Local = strings.HasPrefix(e.Source.URL, "file://")
	tags, _, err := git.Tags(ctx, e.Source.URL)
	if newest = strings.TrimPrefix(origin.Latest(tags), "v"); err == nil && newest != "" && manifest.CompareVersions(newest, e.Version) > 0 {
		return newest, true, nil
	}
	return "", true, err
}

// newestServer is outdated for what a registry of MCP servers names.
func (c command) newestServer(ctx context.Context, p *place, e lockfile.Package) (string, error) {
	latest, err := c.find(ctx, p, e.Source.Registry, e.Source.Server, "")
	if err != nil {
		return "", err // such as that it was deleted
	}
	version := latest.Server.Version
	if !isNewer(version, e.Version) {
		return "", deprecated(latest.Server)
	}
	installed, err := c.find(ctx, p, e.Source.Registry, e.Source.Server, e.Version)
	if err != nil {
		if _, missing := errors.AsType[*registry.NotFoundError](err); missing {
			err = errors.New("the registry does not have this version any more")
		}
		return version, err
	}
	return version, deprecated(installed.Server)
}

// isNewer reports whether a server has a newer version: versions that are none of SemVer have no order.
func isNewer(version, than string) bool {
	if manifest.ValidVersion(version) && manifest.ValidVersion(than) {
		return manifest.CompareVersions(version, than) > 0
	}
	return version != than
}

// deprecated returns what a registry says of a deprecated server; nil for others.
func deprecated(server *registry.Server) error {
	switch {
	case !server.Deprecated:
		return nil
	case server.Message == "":
		return errors.New("the registry says that it is deprecated")
	}
	return fmt.Errorf("the registry says that it is deprecated: %s", server.Message)
}

// fromFiles reports whether a repository of this machine is in a lock.
func (p *place) fromFiles() bool {
	lock, err := lockfile.Read(p.store.Lock)
	return err == nil && slices.ContainsFunc(lock.Packages, func(e lockfile.Package) bool { return strings.HasPrefix(e.Source.URL, "file://") })
}
