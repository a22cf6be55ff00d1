package discover

import (
	"sync"
	"time"

	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// Seen remembers from one search to the next what is in the files that have not changed: those that hold no
// resources, executables, and packages. Several searches may use it at once. The zero Seen remembers nothing yet.
type Seen struct {
	Now func() time.Time // asked once for each file that is to be read; nil: time.Now

	once      sync.Once
	documents resource.Seen

	mu  sync.Mutex // guards all
	all sights
}

// sights are what searches have read, by their paths.
type sights struct {
	tools    map[string]seenTool
	packages map[string]*seenPackage
}

// seenTool is an executable as it was before it was read.
type seenTool struct {
	id     identity
	parsed *toolfile.Parsed
}

// racy is how old the last change of a file must be: a change right after it may have the same time.
const racy = time.Second

// ofDocuments is what is remembered of files that may hold resources.
func (s *Seen) ofDocuments() *resource.Seen {
	if s == nil {
		return nil
	}
	s.once.Do(func() { s.documents.Now = s.Now })
	return &s.documents
}

// HidesNothing reports whether the folder of a package, an absolute path without links, is as it was when a search before the last
// one read the package, so that nothing was read that may have come from another folder, and has no entry whose name begins with a dot.
func (s *Seen) HidesNothing(dir string) bool {
	if s == nil {
		return false
	}
	p, ok := s.known().packages[dir]
	return ok && p.again && !p.hides
}

// known is what earlier searches have read. It must not be modified.
func (s *Seen) known() sights {
	if s == nil {
		return sights{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// replace remembers these, and no others.
func (s *Seen) replace(all sights) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
}

func (s *Seen) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// identity changes whenever a file does.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // in nanoseconds since 1970
}

// isOld reports whether a file has not been changed lately.
func (i identity) isOld(now time.Time) bool { return now.Sub(time.Unix(0, i.ctime)) > racy }
