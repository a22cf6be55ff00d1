package watch

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// A burst of more paths than that is not listed: the whole tree is looked at.
const maxNotes = 4096

// lookAgain is not an event of the library's: the watch of a path has gone, whatever
// has become of it. It has a bit of its own, since the notes of a path are put together.
const lookAgain fsnotify.Op = 1 << 31

// note says that something happened to a path.
type note struct {
	path string
	op   fsnotify.Op
}

// inbox holds what a Hub has for a Watcher until it is fetched. Whoever puts
// something in never waits.
type inbox struct {
	ready chan struct{} // holds a value when there is something to fetch

	mu    sync.Mutex // guards what follows
	notes []note     // in the order of each path's first event
	index map[string]int
	lost  bool  // there was more than notes can tell
	err   error // why, for the log
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (b *inbox) put(path string, op fsnotify.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, there := b.index[path]; there {
		b.notes[i].op |= op
		return // the signal is still to be fetched, or on its way
	}
	if len(b.notes) == maxNotes {
		b.lost = true
		return
	}
	if b.index == nil {
		b.index = map[string]int{}
	}
	b.index[path] = len(b.notes)
	b.notes = append(b.notes, note{path, op})
	b.signal()
}

// lose says that events are missing. An err is for the log.
func (b *inbox) lose(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost, b.err = true, err
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (b *inbox) take() (notes []note, lost bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	notes, lost, err = b.notes, b.lost, b.err
	b.notes, b.index, b.lost, b.err = nil, nil, false, nil
	return notes, lost, err
}
