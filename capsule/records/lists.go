// Package records keeps what Orla has to know about capsules at its next start: what they
// offer, and which of them an operator has stopped.
package records

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest"
)

// Lists remembers what capsules said that they offer, so that their tools can
// be listed before they are READY (SPEC D7a). It is kept in a folder, and in
// memory for as long as Orla runs. Its methods may be called from any goroutine;
// a nil *Lists remembers nothing.
type Lists struct {
	dir     string
	renewed bool // see Renew

	mu     sync.Mutex // guards the fields that follow
	known  map[string]Offered
	latest map[string]Offered // what any version of a tool offered last, by toolKey
	warned bool               // that they cannot be kept
}

// NewLists returns Lists that are kept in dir, which is made when it is needed.
// With "" they are kept in memory only.
func NewLists(dir string) *Lists {
	if dir != "" {
		wholefile.Sweep(dir)
	}
	return &Lists{dir: dir, known: map[string]Offered{}, latest: map[string]Offered{}}
}

// Renew returns Lists in the same folder that ignore the files there, and replace them.
func (l *Lists) Renew() *Lists {
	return &Lists{dir: l.dir, renewed: true, known: map[string]Offered{}, latest: map[string]Offered{}}
}

// Offered is what a capsule said that it offers, in its own words.
type Offered struct {
	Tools     []json.RawMessage `json:"tools,omitempty"`
	Resources []json.RawMessage `json:"resources,omitempty"`
	Templates []json.RawMessage `json:"templates,omitempty"`
	Prompts   []json.RawMessage `json:"prompts,omitempty"`

	Reads     bool `json:"reads,omitempty"`
	Completes bool `json:"completes,omitempty"`
	Logs      bool `json:"logs,omitempty"`
}

// Size returns how many things a capsule said that it offers, and their bytes.
func (o *Offered) Size() (things, bytes int) {
	for _, list := range [][]json.RawMessage{o.Tools, o.Resources, o.Templates, o.Prompts} {
		things += len(list)
		for _, item := range list {
			bytes += len(item)
		}
	}
	return things, bytes
}

const (
	// maxListFile bounds what is read back.
	maxListFile = 64 << 20
	// maxSourceRead bounds what is read of a file for its source: a path of 4096
	// bytes, each of which JSON may escape.
	maxSourceRead = 32 << 10
)

// listFile is the content of a file.
type listFile struct {
	Source string `json:"source"` // the manifest, absolute; first, so that a short read has it
	Offered
}

// listName is how files of lists are called: see key.
var listName = regexp.MustCompile(`-[0-9a-f]{16}\.json$`)

// key tells the capsules of all projects apart, by where their manifests are.
func key(t manifest.Tool) string {
	sum := sha256.Sum256([]byte(absolute(t.Source)))
	return t.Name + "-" + hex.EncodeToString(sum[:8])
}

// nameIn returns the tool's name in a key.
func nameIn(key string) string { return key[:max(0, len(key)-len("-0123456789abcdef"))] }

// Load returns what the capsule of a manifest offered last, if that is known.
func (l *Lists) Load(t manifest.Tool) (Offered, bool) {
	if l == nil {
		return Offered{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if said, ok := l.known[key(t)]; ok {
		return said, true
	}
	if l.dir == "" || l.renewed {
		return Offered{}, false
	}
	var said listFile
	path := filepath.Join(l.dir, key(t)+".json")
	raw, err := regularfile.ReadOwn(path, maxListFile)
	if err != nil || json.Unmarshal(raw, &said) != nil {
		return Offered{}, false // the capsule is asked again, and the file is replaced
	}
	l.note(t, said.Offered)
	return said.Offered, true
}

// note remembers in memory what the capsule of a manifest offers. The caller holds mu.
func (l *Lists) note(t manifest.Tool, said Offered) {
	l.known[key(t)], l.latest[toolKey(t)] = said, said
}

// Earlier returns what the capsule of another version of a manifest offered last, as far as that is
// known to this Orla: until a version that has never run says what it offers, clients keep these tools.
func (l *Lists) Earlier(t manifest.Tool) (said Offered, was bool) {
	if l == nil {
		return Offered{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	said, was = l.latest[toolKey(t)]
	return said, was
}

// OnlyTool is the name of the one tool that a capsule offered; "" if it offered none or
// several, or nobody remembers.
func (l *Lists) OnlyTool(t manifest.Tool) string {
	said, _ := l.Load(t)
	if len(said.Tools) != 1 {
		return ""
	}
	var only struct{ Name string }
	if json.Unmarshal(said.Tools[0], &only) != nil || only.Name == t.Name {
		return ""
	}
	return only.Name
}

// Save remembers what the capsule of a manifest offers. There must be no other Save for the same manifest meanwhile. Nobody
// waits for the file, which may be large: a reload needs what is remembered of all capsules (SPEC S2).
func (l *Lists) Save(t manifest.Tool, said Offered, log *slog.Logger) {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.note(t, said)
	l.mu.Unlock()
	if l.dir == "" {
		return
	}
	raw, err := rawjson.Line(listFile{absolute(t.Source), said})
	if err == nil {
		err = wholefile.Write(filepath.Join(l.dir, key(t)+".json"), raw)
	}
	l.mu.Lock()
	warn := err != nil && !l.warned
	l.warned = err != nil
	l.mu.Unlock()
	if warn {
		log.Warn("cannot store the lists of capsules for the next start; Orla will ask for them again", "dir", l.dir, "err", err)
	}
}

// Prune forgets the capsules that are not among tools. Their files are removed if
// their manifests are gone, or are those of tools under other names. The folder may
// have files of other projects, which stay, and files that Orla did not write.
func (l *Lists) Prune(tools []manifest.Tool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var files []string
	if l.dir != "" {
		entries, _ := os.ReadDir(l.dir) // it is made when it is needed
		for _, e := range entries {
			if e.Type().IsRegular() && listName.MatchString(e.Name()) {
				files = append(files, e.Name())
			}
		}
	}
	if len(l.latest)+len(files) == 0 { // latest has all that known has
		return
	}
	kept := map[string]bool{} // names of tools that something is kept of; most tools are not capsules
	for k := range l.latest {
		kept[nameIn(k)] = true
	}
	for _, file := range files {
		kept[nameIn(strings.TrimSuffix(file, ".json"))] = true
	}
	keys := map[string]bool{}
	for i := range tools {
		if kept[tools[i].Name] {
			keys[key(tools[i])], keys[toolKey(tools[i])] = true, true
		}
	}
	for k := range l.latest {
		if !keys[k] {
			delete(l.latest, k)
		}
	}
	for k := range l.known {
		if !keys[k] {
			delete(l.known, k)
		}
	}
	var sources map[string]bool
	for _, file := range files {
		if keys[strings.TrimSuffix(file, ".json")] {
			continue
		}
		if sources == nil {
			sources = make(map[string]bool, len(tools))
			for i := range tools {
				sources[absolute(tools[i].Source)] = true
			}
		}
		path := filepath.Join(l.dir, file)
		source, ours := sourceOf(path)
		if !ours {
			continue
		}
		if _, err := os.Lstat(source); sources[source] || errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(path) // it is tried again at the next reload
		}
	}
}

// sourceOf returns the manifest that a file's capsule had. ours is false if Orla
// did not write the file.
func sourceOf(path string) (source string, ours bool) {
	f, _, err := regularfile.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }() // only read
	dec := json.NewDecoder(io.LimitReader(f, maxSourceRead))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", false
	}
	if name, err := dec.Token(); err != nil || name != "source" {
		return "", false
	}
	value, err := dec.Token()
	source, ours = value.(string)
	return source, ours && err == nil && filepath.IsAbs(source)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // the working directory is gone
}
