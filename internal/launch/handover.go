package launch

import (
	"time"

	"github.com/orla-project/orla/internal/launch/cgroup"
	"github.com/orla-project/orla/internal/launch/guard"
	"github.com/orla-project/orla/internal/launch/mainthread"
)

// State is what a Local gives to the program that follows it in this process (docs/decisions/0051).
type State struct {
	Instance string       `json:"instance"`
	LastTag  uint32       `json:"last_tag"`
	Guard    *guard.State `json:"guard,omitempty"`
	// Children are the processes that were given, one by one.
	Children []int `json:"children,omitempty"`
}

// children returns the children that the reaper must not reap.
func (s *State) children() []int {
	if s.Guard == nil {
		return s.Children
	}
	return append([]int{s.Guard.PID}, s.Children...)
}

// ProcessState is a process that was given to the program that follows. Streams are descriptors.
type ProcessState struct {
	PID     int           `json:"pid"`
	Streams [3]int        `json:"streams"`
	Mark    string        `json:"mark"`
	Tag     uint64        `json:"tag,omitempty"`
	Whole   bool          `json:"whole,omitempty"`
	Grace   time.Duration `json:"grace"`
	Cell    *cgroup.State `json:"cell,omitempty"`
	Applied Applied       `json:"applied"`
}

// Leave is called in place of Close when another program is to be executed in this process. It waits for all
// processes that were not given, and leaves the guard alone. It returns what that program needs.
func (l *Local) Leave() *State {
	if !l.end() {
		return nil
	}
	s := &State{Instance: l.instance, LastTag: l.tags.Last()}
	if l.guard != nil {
		s.Guard = l.guard.Leave()
	}
	l.mu.Lock()
	s.Children = l.given
	l.mu.Unlock()
	l.reaper.close()
	l.groups.Close()
	return s
}

// onMain is a reaper whose children are forked on the main thread, if that is kept.
type onMain struct{ *reaper }

// Starting implements guard.Children.
func (r onMain) Starting(start func() (int, error)) (pid int, err error) {
	return r.reaper.Starting(func() (int, error) {
		if !mainthread.Do(func() { pid, err = start() }) {
			pid, err = start()
		}
		return pid, err
	})
}
