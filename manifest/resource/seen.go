package resource

import (
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSeen is how many files are remembered. With one more all are forgotten.
	maxSeen = 100_000
	// racy is how old the last change of a file must be: a change right after it may
	// have the same time.
	racy = time.Second
)

// Seen remembers which files hold no resources and no governance documents, so that
// the next search reads only the files that have changed. The zero Seen remembers
// nothing yet. Several searches may use it at once.
type Seen struct {
	Now func() time.Time // asked once for each file that is to be read; nil: time.Now

	mu    sync.Mutex
	files map[string]seenFile
}

type seenFile struct {
	id      unix.Stat_t
	content Content // without data
}

// sighting is a file as it was before it was read.
type sighting struct {
	key, path string
	id        unix.Stat_t
	at        time.Time
	ok        bool
}

// look looks at a file, and returns what it holds if that is remembered. Its
// extension counts as well, and a link may have another one.
func (s *Seen) look(at, path string) (sighting, Content, bool) {
	if s == nil {
		return sighting{}, Content{}, false
	}
	f := sighting{key: path + "\x00" + filepath.Ext(at), path: path}
	f.id, f.ok = identify(path)
	s.mu.Lock()
	known, found := s.files[f.key]
	s.mu.Unlock()
	if f.ok && found && known.id == f.id {
		return f, known.content, true
	}
	f.at = time.Now()
	if s.Now != nil {
		f.at = s.Now()
	}
	return f, Content{}, false
}

// keep remembers what a file holds, if it cannot have changed since it was looked at.
func (s *Seen) keep(f sighting, c Content) {
	if s == nil || !f.ok || f.at.Sub(time.Unix(f.id.Ctim.Unix())) <= racy {
		return
	}
	if id, ok := identify(f.path); !ok || id != f.id {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil || len(s.files) >= maxSeen {
		s.files = map[string]seenFile{}
	}
	s.files[f.key] = seenFile{f.id, c}
}

// identify returns what changes whenever a file does.
func identify(path string) (id unix.Stat_t, ok bool) {
	if unix.Stat(path, &id) != nil {
		return id, false
	}
	id.Atim, id.Blocks = unix.Timespec{}, 0 // these change by themselves
	return id, true
}
