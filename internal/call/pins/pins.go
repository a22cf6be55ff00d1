// Package pins remembers which definitions of tools and prompts were accepted (SPEC N4): those of the first
// list of each provider, and those that an operator has accepted since. What a definition is, definition.go says.
//
// Its invariant: a definition becomes an accepted one by the first list of its provider or by Approve, and in no
// other way. It is in a file before it counts as one.
package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/manifest"
)

// Store has the pins of all providers, a file for each. Its methods may be called from any goroutine. A nil
// *Store pins nothing.
type Store struct {
	dir    string
	log    *slog.Logger
	frozen bool    // see Freeze
	common *common // nil if this process has its pins alone

	mu    sync.Mutex // guards providers
	known map[string]*Provider
}

// NewStore returns a Store that keeps its files in dir, which is made when it is needed. With "" they are kept
// in memory only, and nothing is served under hold.
func NewStore(dir string, log *slog.Logger) *Store {
	if dir != "" {
		wholefile.Sweep(dir)
	}
	return &Store{dir: dir, log: log, known: map[string]*Provider{}}
}

// Freeze makes the Store write nothing. It is called before the first Of, by a process that only looks.
func (s *Store) Freeze() { s.frozen = true }

// Of returns the pins of the provider of a manifest; nil if it has none. It is the same for all versions of a
// manifest that were in the folder one after another.
func (s *Store) Of(t manifest.Tool) *Provider {
	if s == nil || !Pinned(t) {
		return nil
	}
	k := key(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.known[k]
	if p == nil {
		p = &Provider{store: s, name: t.Name, path: filepath.Join(s.dir, k+".json")}
		if s.common != nil {
			p.path = "what all replicas have accepted of " + t.Name
		}
		s.known[k] = p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source, p.hold, p.held = absolute(t.Source), t.Runtime.Pin == manifest.PinHold, nil
	return p
}

// Pinned reports whether the definitions of a manifest's provider are pinned. Those that stand in a file of the
// tools folder are not: who can change them can change this too.
func Pinned(t manifest.Tool) bool {
	return t.Kind == manifest.Capsule && !t.Runtime.Declared && t.Runtime.Pin != "" && t.Runtime.Pin != manifest.PinOff
}

// key tells the providers of all projects apart: by their names, and by the folders of their manifests. Neither
// another name of the file nor another version in NAME/VERSION/ makes another provider.
func key(t manifest.Tool) string {
	dir := filepath.Dir(absolute(t.Source))
	if up := filepath.Dir(dir); filepath.Base(up) == t.Name {
		dir = up
	}
	sum := sha256.Sum256([]byte(dir))
	return t.Name + "-" + hex.EncodeToString(sum[:8])
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // the working directory is gone
}

const (
	// keptGone is how long pins are kept after a provider was last served and its manifest has gone.
	keptGone = 90 * 24 * time.Hour
	// touchEach is how often a file is marked as one of a provider that is served.
	touchEach = 24 * time.Hour
)

// Prune forgets the providers that are not those of tools. The file of one stays for keptGone, and for as long as
// its manifest exists. The time of the last change of a file says when its provider was last served.
func (s *Store) Prune(tools []manifest.Tool) {
	if s == nil {
		return
	}
	served := map[string]bool{}
	for i := range tools {
		if Pinned(tools[i]) {
			served[key(tools[i])] = true
		}
	}
	left := map[string]bool{} // those that were served until now
	s.mu.Lock()
	for k := range s.known {
		if !served[k] {
			left[k] = true
			delete(s.known, k)
		}
	}
	s.mu.Unlock()
	if s.dir == "" || s.frozen || s.common != nil {
		return
	}
	entries, _ := os.ReadDir(s.dir) // it is made when it is needed
	for _, e := range entries {
		k, isJSON := strings.CutSuffix(e.Name(), ".json")
		info, err := e.Info()
		if !isJSON || err != nil || !info.Mode().IsRegular() {
			continue
		}
		path, age := filepath.Join(s.dir, e.Name()), time.Since(info.ModTime())
		switch {
		case (served[k] || left[k]) && age > touchEach:
			now := time.Now()
			_ = os.Chtimes(path, now, now) // it is tried again at the next reload
		case !served[k] && age > keptGone:
			forget(path, filepath.Join(s.dir, k+lockSuffix))
		}
	}
}

// forget removes a file of pins whose manifest does not exist, and its lock. If that fails, it is tried again at the next reload.
func forget(path, locked string) {
	if !goneSource(path) {
		return
	}
	unlock, err := tryLock(locked) // who removes a lock has to hold it
	if err != nil {
		return
	}
	defer unlock()
	if goneSource(path) && os.Remove(path) == nil {
		_ = os.Remove(locked)
	}
}

// goneSource reports whether a file is one of pins, and the manifest that it names does not exist.
func goneSource(path string) bool {
	f, err := readFile(path)
	if err != nil || f.Source == "" {
		return false
	}
	_, err = os.Lstat(f.Source)
	return errors.Is(err, fs.ErrNotExist)
}

// providers returns those that are served, by name.
func (s *Store) providers() []*Provider {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Provider, 0, len(s.known))
	for _, p := range s.known {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Provider) int { return strings.Compare(a.path, b.path) })
	return all
}
