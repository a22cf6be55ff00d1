package records

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/manifest"
)

// Holds remembers which capsules were stopped by an operator, so that neither another
// manifest nor another Orla starts them (SPEC J1). It is kept in a folder, a
// file for each, and in memory for as long as Orla runs. Its methods may be
// called from any goroutine; a nil *Holds remembers nothing.
type Holds struct {
	dir string

	mu     sync.Mutex // guards the fields that follow
	known  map[string]bool
	warned bool // that they cannot be kept
}

// NewHolds returns Holds that are kept in dir, which is made when it is needed.
// With "" they are kept in memory only.
func NewHolds(dir string) *Holds {
	if dir != "" {
		wholefile.Sweep(dir)
	}
	return &Holds{dir: dir, known: map[string]bool{}}
}

// toolKey is the same for all versions of a tool: NAME/1.0.0 that was stopped
// does not start as NAME/1.1.0.
func toolKey(t manifest.Tool) string {
	dir := filepath.Dir(t.Source)
	if up := filepath.Dir(dir); filepath.Base(up) == t.Name {
		dir = up
	}
	t.Source = dir
	return key(t)
}

// Load reports whether t is held; known is false for a nil Holds.
func (h *Holds) Load(t manifest.Tool) (held, known bool) {
	if h == nil {
		return false, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := toolKey(t)
	if held, ok := h.known[k]; ok {
		return held, true
	}
	if h.dir != "" {
		_, err := os.Stat(filepath.Join(h.dir, k))
		held = err == nil
	}
	h.known[k] = held
	return held, true
}

// Save remembers whether t is held.
func (h *Holds) Save(t manifest.Tool, held bool, log *slog.Logger) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := toolKey(t)
	h.known[k] = held
	if h.dir == "" {
		return
	}
	var err error
	if held {
		err = wholefile.Write(filepath.Join(h.dir, k), []byte(t.Source+"\n"))
	} else if err = os.Remove(filepath.Join(h.dir, k)); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil && !h.warned {
		log.Warn("cannot store for the next start of Orla which capsules an operator has stopped or started", "dir", h.dir, "err", err)
	}
	h.warned = err != nil
}
