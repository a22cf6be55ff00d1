package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/packages/origin"
)

const (
	indexFile      = "registry.yaml"
	maxIndex       = 4 << 20
	maxDescription = 1024
	maxKeywords    = 50
	maxSigners     = 20
	// Beside its index, a registry may have pages about its tools.
	maxRegistry = 64 << 20
)

// packageName is how packages may be called.
var packageName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })

// index is a git repository with a registry.yaml.
type index struct {
	registries *Registries
	url        string
	cache      cache
}

// document is a registry.yaml (RFC 3, section 6.3). signers is Orla's own.
type document struct {
	Version     int        `json:"version" jsonschema:"1"`
	RegistryURL string     `json:"registry_url,omitempty" jsonschema:"the URL of the repository of the registry"`
	Tools       []toolText `json:"tools" jsonschema:"the packages"`
}

type toolText struct {
	Name        string   `json:"name" jsonschema:"unique in the registry"`
	Description string   `json:"description" jsonschema:"in a sentence"`
	Repository  string   `json:"repository" jsonschema:"the URL of the git repository of the package"`
	Maintainer  string   `json:"maintainer,omitempty" jsonschema:"a person or an organization"`
	Keywords    []string `json:"keywords,omitempty" jsonschema:"words to find it by"`
	Signers     []string `json:"signers,omitempty" jsonschema:"SSH public keys, one of which must have signed each tag"`
}

// Parse reads a registry.yaml. file is used in messages, and url is that of the registry. The error is yamldoc.Faults.
func Parse(file string, data []byte, url string, local bool) ([]Entry, error) {
	var d document
	doc, err := yamldoc.Decode(file, data, &d, yamldoc.Options{MaxSize: maxIndex})
	if err != nil {
		return nil, err
	}
	if d.Version != 1 {
		doc.Faultf("version", "must be 1, got %d", d.Version)
	}
	entries := make([]Entry, 0, len(d.Tools))
	names := map[string]string{}
	for i, t := range d.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		if other, there := names[strings.ToLower(t.Name)]; there {
			doc.Faultf(at+".name", "%q is there twice (%q)", t.Name, other)
		}
		names[strings.ToLower(t.Name)] = t.Name
		entries = append(entries, t.entry(doc, at, url, local))
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return entries, nil
}

// entry checks a tool.
func (t toolText) entry(doc *yamldoc.Doc, at, url string, local bool) Entry {
	if !packageName().MatchString(t.Name) {
		doc.Faultf(at+".name", "must be 1 to 64 letters, digits, dots, dashes and underscores, got %q", t.Name)
	}
	if strings.TrimSpace(t.Description) == "" || len(t.Description) > maxDescription {
		doc.Faultf(at+".description", "must have 1 to %d bytes", maxDescription)
	}
	if err := origin.CheckURL(t.Repository, local && origin.OnThisMachine(url)); err != nil {
		doc.Faultf(at+".repository", "%v", err)
	} else if origin.MayBeThisMachine(t.Repository) && !origin.OnThisMachine(url) {
		doc.Faultf(at+".repository", "a registry elsewhere cannot name a repository on this machine")
	}
	if len(t.Keywords) > maxKeywords {
		doc.Faultf(at+".keywords", "may be at most %d, got %d", maxKeywords, len(t.Keywords))
	}
	e := Entry{Name: t.Name, Description: plain(t.Description), Repository: t.Repository, Maintainer: plain(t.Maintainer), Registry: url}
	for _, k := range t.Keywords {
		e.Keywords = append(e.Keywords, plain(k))
	}
	if doc.Has(at+".signers") && (len(t.Signers) == 0 || len(t.Signers) > maxSigners) {
		doc.Faultf(at+".signers", "must be 1 to %d, got %d", maxSigners, len(t.Signers))
	}
	for j, text := range t.Signers {
		key, err := origin.ParseSigner(text)
		if err != nil {
			doc.Faultf(fmt.Sprintf("%s.signers[%d]", at, j), "%v", err)
		}
		e.Signers = append(e.Signers, key)
	}
	return e
}

// entries returns all entries, with their age: 0 if they are fresh.
func (x *index) entries(ctx context.Context) ([]Entry, time.Duration, error) {
	data, age, there := x.cache.read(indexFile, maxIndex)
	if there && age < fresh {
		entries, err := x.parse(data, 0)
		return entries, 0, err
	}
	got, err := x.fetch(ctx)
	if err == nil {
		var entries []Entry
		if entries, err = x.parse(got, 0); err == nil {
			return entries, 0, x.cache.write(indexFile, got)
		}
	}
	if there && !errors.Is(ctx.Err(), context.Canceled) {
		if entries, kept := x.parse(data, age); kept == nil {
			return entries, age, nil
		}
	}
	return nil, 0, err
}

func (x *index) parse(data []byte, age time.Duration) ([]Entry, error) {
	entries, err := Parse(indexFile, data, x.url, x.registries.options.Git.Local)
	for i := range entries {
		entries[i].Age = age
	}
	return entries, err
}

// fetch returns the registry.yaml of the repository.
func (x *index) fetch(ctx context.Context) ([]byte, error) {
	if err := os.MkdirAll(x.cache.dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(x.cache.dir, fetching)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	git := x.registries.options.Git
	git.Limits = origin.Limits{Bytes: maxRegistry}
	if _, err := git.Fetch(ctx, x.url, "HEAD", dir, nil); err != nil {
		return nil, err
	}
	data, err := regularfile.Read(filepath.Join(dir, indexFile), maxIndex+1)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("the repository has no " + indexFile)
	case err != nil:
		return nil, err
	case len(data) > maxIndex:
		return nil, fmt.Errorf("%s has over %d bytes", indexFile, maxIndex)
	}
	return data, nil
}

func (x *index) find(ctx context.Context, name, _ string) (Entry, error) {
	entries, _, err := x.entries(ctx)
	if err != nil {
		return Entry{}, err
	}
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name }); i >= 0 {
		return entries[i], nil
	}
	return Entry{}, &NotFoundError{Name: name, Nearest: yamldoc.Nearest(name, namesOf(entries))}
}

func (x *index) search(ctx context.Context, _ string) ([]Entry, time.Duration, error) {
	return x.entries(ctx)
}
