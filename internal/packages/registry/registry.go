// Package registry looks names up in registries of packages: git repositories with a registry.yaml
// (RFC 3, section 6), and services with the API of MCP registries (SPEC M2, M3).
//
// Its invariants: an answer of a registry is bounded, whatever the registry sends; what was learned within
// the last hour is not asked for again; and without a network the cache answers, with its age.
// A name is never taken from a registry while an earlier one cannot say whether it has the name.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
)

// fresh is how long an answer is used without a question.
const fresh = time.Hour

// Entry is what a registry says of a package or a server.
type Entry struct {
	Name, Description string
	Repository        string // the URL of the git repository of a package; what an MCP server says of its own
	Keywords          []string
	Signers           []string // SSH public keys, as origin.ParseSigner returns them; one of them must have signed
	Maintainer        string
	Registry          string // the URL of the registry
	Age               time.Duration
	Server            *Server // of an MCP registry, or nil
}

// Asked is the answer of all registries.
type Asked struct {
	Entries  []Entry       // best match first
	Age      time.Duration // of the oldest answer in it; 0 if all were fresh
	Problems []error       // one for each registry that did not answer
}

// Options configures Registries. The zero value works.
type Options struct {
	Git       origin.Git
	UserAgent string        // of requests to MCP registries; if empty, "orla"
	Timeout   time.Duration // for a registry to answer; if 0, a minute
	// Transport makes the requests to MCP registries. If nil, a new one does.
	Transport http.RoundTripper
}

// Registries asks registries in their order. Its methods may be called from any goroutine.
type Registries struct {
	cache   cache
	urls    []string
	options Options
	client  *http.Client
}

// Folder returns the folder of the user's caches for registries.
func Folder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "orla", "registries"), nil
}

// New returns Registries with a cache in a folder, which need not exist. It uses neither network nor disk.
func New(folder string, urls []string, options Options) *Registries {
	options.UserAgent = cmp.Or(options.UserAgent, "orla")
	options.Timeout = cmp.Or(options.Timeout, time.Minute)
	return &Registries{cache: cache{dir: folder}, urls: urls, options: options, client: newClient(options.Transport)}
}

// NotFoundError says that no registry has a name.
type NotFoundError struct {
	Name    string
	Nearest string // a name that was probably meant, or ""
}

// Error names the nearest name.
func (e *NotFoundError) Error() string {
	if e.Nearest != "" {
		return fmt.Sprintf("no registry has %q; did you mean %q?", e.Name, e.Nearest)
	}
	return fmt.Sprintf("no registry has %q", e.Name)
}

// ErrDeleted is in the chain of the error if an MCP registry has deleted a server: it was spam, malware or illegal.
var ErrDeleted = errors.New("the registry has deleted this server")

// one is one registry.
type one interface {
	// find returns the entry of a name, or a *NotFoundError. version is for MCP servers; "" for the latest.
	find(ctx context.Context, name, version string) (Entry, error)
	// search returns entries that may match, in any order.
	search(ctx context.Context, query string) ([]Entry, time.Duration, error)
}

// Find returns the entry of a name. A name with a slash is that of an MCP server, of a version; "" is the latest. Registries of
// packages know no versions. The error is a *NotFoundError if all registries have answered and none has the name.
func (r *Registries) Find(ctx context.Context, name, version string) (Entry, error) {
	isServer := strings.Contains(name, "/")
	if isServer && !serverName().MatchString(name) || !isServer && !packageName().MatchString(name) {
		return Entry{}, fmt.Errorf("%q cannot be the name of a package or a server", name)
	}
	nearest, asked := "", 0
	ctx, cancel := r.patient(ctx)
	defer cancel()
	for _, url := range r.urls {
		from, isAPI, err := r.open(ctx, url)
		if err != nil {
			return Entry{}, fmt.Errorf("registry %s: %w", shown(url), err)
		}
		if isAPI != isServer {
			continue
		}
		asked++
		entry, err := from.find(ctx, name, version)
		missing, isMissing := errors.AsType[*NotFoundError](err)
		switch {
		case err == nil:
			return entry, nil
		case !isMissing:
			return Entry{}, fmt.Errorf("registry %s: %w", shown(url), err)
		}
		nearest = cmp.Or(nearest, missing.Nearest)
	}
	if asked == 0 {
		what := "packages (a git repository with a registry.yaml)"
		if isServer {
			what = "MCP servers"
		}
		return Entry{}, fmt.Errorf("no registry of %s is configured", what)
	}
	return Entry{}, &NotFoundError{Name: name, Nearest: nearest}
}

// Search asks all registries. Every word of the query must be in the name, the description or the keywords of an entry.
func (r *Registries) Search(ctx context.Context, query string) (Asked, error) {
	if len(query) > maxQuery {
		return Asked{}, fmt.Errorf("the query has over %d bytes", maxQuery)
	}
	var asked Asked
	for _, url := range r.urls {
		entries, age, err := r.searchOne(ctx, url, query)
		switch {
		case ctx.Err() != nil:
			return asked, context.Cause(ctx)
		case err != nil:
			asked.Problems = append(asked.Problems, fmt.Errorf("registry %s: %w", shown(url), err))
		}
		asked.Age = max(asked.Age, age)
		asked.Entries = append(asked.Entries, entries...)
	}
	asked.Entries = rank(asked.Entries, query)
	return asked, nil
}

func (r *Registries) searchOne(ctx context.Context, url, query string) ([]Entry, time.Duration, error) {
	ctx, cancel := r.patient(ctx)
	defer cancel()
	from, _, err := r.open(ctx, url)
	if err != nil {
		return nil, 0, err
	}
	return from.search(ctx, query)
}

// patient bounds the time of a registry, however many requests it needs.
func (r *Registries) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.options.Timeout, fmt.Errorf("it did not answer within %s", r.options.Timeout))
}

// Clear removes everything that is kept of registries.
func (r *Registries) Clear() error { return r.cache.clear() }

// open returns the registry at a URL, and whether it is that of MCP servers.
func (r *Registries) open(ctx context.Context, url string) (one, bool, error) {
	service := &api{registries: r, url: url, cache: r.cache.of(url)}
	switch isAPI, err := service.isThere(ctx); {
	case err != nil:
		return nil, false, err
	case isAPI:
		return service, true, nil
	}
	return &index{registries: r, url: url, cache: service.cache}, false, nil
}

// hosts are those of git alone: they are not asked whether they are MCP registries.
var hosts = []string{"github.com", "gitlab.com", "codeberg.org", "bitbucket.org", "git.sr.ht"}

// What is kept of a registry: whether it is a repository or an API.
const (
	kindGit = "git"
	kindAPI = "mcp"
)

// isThere reports whether the API is at its URL, and not a repository. A URL of https may be either, so it is asked once.
func (a *api) isThere(ctx context.Context) (bool, error) {
	u, err := parseHTTP(a.url)
	if err != nil || strings.HasSuffix(u.Path, ".git") || slices.Contains(hosts, u.Hostname()) {
		return false, origin.CheckURL(a.url, a.registries.options.Git.Local)
	}
	if kept, _, there := a.cache.read(kindFile, 16); there && (string(kept) == kindGit || string(kept) == kindAPI) {
		return string(kept) == kindAPI, nil
	}
	if u.Scheme == "http" && !origin.Loopback(u.Hostname()) {
		return false, errors.New("http is not encrypted, and only accepted from this machine: use https")
	}
	isAPI, err := a.speaks(ctx)
	if err != nil {
		return false, err
	}
	kind := kindGit
	if isAPI {
		kind = kindAPI
	}
	return isAPI, a.cache.write(kindFile, []byte(kind))
}
