package discover

import (
	"sync"
	"time"

	"github.com/orla-project/orla/manifest/resource"
	"github.com/orla-project/orla/manifest/toolfile"
)

// Seen remembers from one search to the next what is in the files that have not changed: those that hold no
// resources, and executables. Several searches may use it at once. The zero Seen remembers nothing yet.
type Seen struct {
	Now func() time.Time // asked once for each file that is to be read; nil: time.Now

	once      sync.Once
	documents resource.Seen

	mu    sync.Mutex // guards tools
	tools map[string]seenTool
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

// known are the executables that earlier searches have read. It must not be modified.
func (s *Seen) known() map[string]seenTool {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools
}

// replace remembers these executables, and no others.
func (s *Seen) replace(tools map[string]seenTool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools = tools
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
