// Package discovery finds the tools of a configuration, gives them the operator's limits
// and terms of isolation, and says what is wrong with the rest.
package discovery

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

// Folders returns the folders of tools, that of the project first.
func Folders(cfg *config.Loaded, home string) discover.Options {
	opts := discover.Options{ToolsDir: cfg.ToolsDir}
	if _, err := os.Stat(opts.ToolsDir); err != nil {
		opts.ToolsDir = config.Absolute(opts.ToolsDir) // the message about it says where it would be
	}
	if home != "" {
		opts.UserDir = filepath.Join(home, ".orla", "tools")
	}
	return opts
}

// Find finds the tools and gives them the limits that the configuration
// sets, so that a change of those is a change of the tools.
func Find(cfg *config.Loaded, home string) manifest.Result { return Search{}.Find(cfg, home) }

// Search has the options of a search. The zero Search reads all files and is not stopped.
type Search struct {
	Stopped func() error      // of discover.Options
	Seen    *Seen             // what earlier searches have read; nil for none
	Cluster *discover.Cluster // of discover.Options
}

// Seen is what searches have read of files, so that the next one reads only those that have changed. It is used by one search at
// a time. The zero value has nothing.
type Seen struct {
	tools    discover.Seen
	declared deps.Files
}

// Find is like the function Find, with the options of s.
func (s Search) Find(cfg *config.Loaded, home string) manifest.Result {
	packages := readPackages(cfg, home)
	found, all := s.find(cfg, home, packages)
	if packages.settle(s.Stopped) {
		found, all = s.find(cfg, home, readPackages(cfg, home))
	}
	governance.Check(&found, cfg, all.Tools)
	return s.withLimits(found, cfg)
}

// find returns what is served as the folders are now, without limits, and all that is there.
func (s Search) find(cfg *config.Loaded, home string, packages *packages) (found, all manifest.Result) {
	folders := Folders(cfg, home)
	folders.Stopped, folders.Cluster = s.Stopped, s.Cluster
	if s.Seen != nil {
		folders.Seen = &s.Seen.tools
	}
	folders.Order = packages.order
	all = discover.Tools(folders)
	found = all
	if cfg.Only != "" {
		found = withDocuments(discover.Validate(cfg.Only), all)
	}
	found.Folders = []string{folders.ToolsDir}
	if folders.UserDir != "" {
		found.Folders = append(found.Folders, folders.UserDir)
	}
	if s.Seen != nil && cfg.Only == "" { // which is read once more
		packages.seen = &s.Seen.tools
	}
	packages.restrict(&found, cfg)
	return found, all
}

// withDocuments adds to what a search for one tool alone has found the governance documents of the folders of
// tools, which hold for it too.
func withDocuments(found, all manifest.Result) manifest.Result {
	for _, p := range all.Problems {
		same := func(other manifest.Problem) bool { return config.Absolute(other.Path) == config.Absolute(p.Path) }
		if p.Denies && !slices.ContainsFunc(found.Problems, same) {
			found.Problems = append(found.Problems, p)
		}
	}
	found.Rules = all.Rules.With(found.Rules)
	return found
}

// WithLimits sets the limits of the tools, in place, removes tools that ask for more than they may have, and warns of those that
// nobody installs the packages of.
func WithLimits(found manifest.Result, cfg *config.Loaded) manifest.Result {
	return Search{}.withLimits(found, cfg)
}

func (s Search) withLimits(found manifest.Result, cfg *config.Loaded) manifest.Result {
	keep(&found, func(t *manifest.Tool) error {
		withLimits(t, cfg)
		return ApplyTerms(t, cfg)
	})
	warnOfUnlocked(&found, &cmp.Or(s.Seen, &Seen{}).declared)
	slices.SortStableFunc(found.Problems, func(a, b manifest.Problem) int { return strings.Compare(a.Path, b.Path) })
	return found
}

func withLimits(t *manifest.Tool, cfg *config.Loaded) {
	t.Run.Timeout = cmp.Or(t.Run.Timeout, time.Duration(cfg.Timeout))
	t.Run.MaxOutput = cmp.Or(t.Run.MaxOutput, int64(cfg.MaxOutput))
	t.Run.StructuredResults = cfg.StructuredResults
	if t.Kind == manifest.Capsule {
		t.Runtime.QueueTimeout = time.Duration(cfg.QueueTimeout)
		t.Runtime.MaxMessage = int64(cfg.MaxMessage)
		t.Runtime.Pin = cmp.Or(t.Runtime.Pin, manifest.Pin(cfg.Pin))
	}
}
