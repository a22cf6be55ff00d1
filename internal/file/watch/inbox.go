package watch

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// maxNotes bounds the paths of a burst: if there are more, the whole tree is compared.
const maxNotes = 4096

// lookAgain is not an event of the library: it says that the watch of a path has ended, for any
// reason. It has its own bit, since the notes of a path are combined.
const lookAgain fsnotify.Op = 1 << 31

// note is an event of a path.
type note struct {
	path string
	op   fsnotify.Op
}

// inbox holds the notes of a Hub for a Watcher until it takes them. Adding notes never blocks.
type inbox struct {
	ready chan struct{} // has a value if there is something to take

	mu    sync.Mutex // guards the fields that follow
	notes []note     // ordered by each path's first event
	index map[string]int
	lost  bool  // events are missing
	err   error // the reason, for the log
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (b *inbox) put(path string, op fsnotify.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, there := b.index[path]; there {
		b.notes[i].op |= op
		return // the signal is pending, or will be sent
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

// lose records that events are missing. err is for the log.
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
