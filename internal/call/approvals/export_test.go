package approvals

import (
	"time"

	"github.com/orla-project/orla/internal/file/wholefile"
)

// MaxEnded is for tests outside of the package.
const MaxEnded = maxEnded

// Open returns how many records have a place.
func (s *Store) Open() int64 { return s.shares.Taken() }

// Writing takes the turn to write, and Writers returns how many wait for theirs.
func (s *Store) Writing(caller string) (end func()) { return s.turn(caller) }

func (s *Store) Writers() int { return s.writing.Waiting() }

// BeforeWrites has do called when a record is about to be written to the disk, in place of a disk that takes that long.
func (s *Store) BeforeWrites(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.(*folder).synced = func(path string, data []byte) error {
		do()
		return wholefile.WriteSynced(path, data)
	}
}

// Jump sets the clock of the Store forward, or back.
func (s *Store) Jump(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper = jumped{s.keeper, by}
}

type jumped struct {
	keeper
	by time.Duration
}

func (j jumped) now() time.Time { return j.keeper.now().Add(j.by) }

// Ready waits until the records of all replicas are known.
func (s *Store) Ready() {
	c := s.keeper.(*common)
	for {
		s.mu.Lock()
		ready := c.ready
		s.mu.Unlock()
		if ready {
			return
		}
		<-time.After(time.Millisecond)
	}
}
