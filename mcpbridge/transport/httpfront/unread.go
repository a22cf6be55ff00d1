package httpfront

import (
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// unreadAfter is after what time a small answer that is still being written takes room. A larger one has its room already.
const unreadAfter, mostSmall = 100 * time.Millisecond, 2 * turns.Little

// smallAnswer is an answer of up to mostSmall while it is written. It takes room if its client does not read it.
type smallAnswer struct {
	room    *turns.Room // nil where nothing is counted
	owner   turns.Owner
	left    atomic.Int64           // what is being written, in bytes; 0 for nothing
	release atomic.Pointer[func()] // gives back the room; nil for none
	refused atomic.Bool            // there was no room: nothing more is written
}

// begin notes that an answer is being written.
func (s *smallAnswer) begin(size int) { s.left.Store(int64(min(size, turns.Little))) }

// end notes that it is written, or will not be.
func (s *smallAnswer) end() {
	s.left.Store(0)
	s.giveBack()
}

func (s *smallAnswer) giveBack() {
	if s.release.Load() == nil {
		return
	}
	if release := s.release.Swap(nil); release != nil {
		(*release)()
	}
}

// waits reports whether an answer is being written.
func (s *smallAnswer) waits() bool { return s.room != nil && s.left.Load() > 0 }

// countUnread takes room for the answer that is being written. If there is none, the connection is given up.
func (r *response) countUnread() {
	s := &r.small
	release, ok := s.room.Try(s.owner, s.left.Load())
	if !ok {
		r.giveUp()
		r.lookAgain(unreadAfter) // the deadline may just have been set to another time
		return
	}
	if !s.release.CompareAndSwap(nil, &release) { // it was counted meanwhile
		release()
	}
	if s.left.Load() == 0 { // it was written meanwhile
		s.giveBack()
	}
}
