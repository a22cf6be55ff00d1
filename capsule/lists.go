package capsule

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/orla-project/orla/internal/wholefile"
	"github.com/orla-project/orla/manifest"
)

// Lists remembers what capsules said that they offer, so that their tools can
// be listed before they are READY (SPEC D7a). It is kept in a folder, and in
// memory for as long as Orla runs. Its methods may be called from any goroutine;
// a nil *Lists remembers nothing.
type Lists struct {
	dir string

	mu     sync.Mutex // guards the fields that follow
	known  map[string]offered
	warned bool // that they cannot be kept
}

// NewLists returns Lists that are kept in dir, which is made when it is needed.
// With "" they are kept in memory only.
func NewLists(dir string) *Lists {
	if dir != "" {
		wholefile.Sweep(dir)
	}
	return &Lists{dir: dir, known: map[string]offered{}}
}

// maxListFile bounds what is read back.
const maxListFile = 64 << 20

// key tells the capsules of all projects apart, by where their manifests are.
func key(t manifest.Tool) string {
	sum := sha256.Sum256([]byte(t.Source))
	return t.Name + "-" + hex.EncodeToString(sum[:8])
}

func (l *Lists) load(t manifest.Tool) (offered, bool) {
	if l == nil {
		return offered{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if said, ok := l.known[key(t)]; ok {
		return said, true
	}
	if l.dir == "" {
		return offered{}, false
	}
	var said offered
	path := filepath.Join(l.dir, key(t)+".json")
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxListFile {
		return offered{}, false
	}
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &said) != nil {
		return offered{}, false // it is asked for anew, and written over
	}
	l.known[key(t)] = said
	return said, true
}

func (l *Lists) save(t manifest.Tool, said offered, log *slog.Logger) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[key(t)] = said
	if l.dir == "" {
		return
	}
	raw, err := json.Marshal(said)
	if err == nil {
		err = wholefile.Write(filepath.Join(l.dir, key(t)+".json"), raw)
	}
	if err != nil && !l.warned {
		log.Warn("what capsules offer cannot be kept for the next start; it is asked for anew then", "dir", l.dir, "err", err)
	}
	l.warned = err != nil
}
