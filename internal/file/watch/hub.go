package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Hub is shared by the Watchers of a process: one inotify instance, of which a user can have only a
// few, and one watch for each folder, however many Watchers watch it. It runs as long as one of its
// Watchers serves. All methods may be called from any goroutine.
type Hub struct {
	mu      sync.Mutex // guards the fields that follow; held during calls of the library
	line    *line      // nil if no Watcher serves
	boxes   []*inbox   // of the Watchers that serve
	byID    map[identity]*entry
	byLabel map[string]*entry
	inside  map[string]map[*entry]bool // entries by the parent folder of their label
	warned  []string                   // limits that were logged

	looks chan struct{} // has a value for each walk that is under way
}

// NewHub returns a Hub, to be used by all Watchers of the process.
func NewHub() *Hub { return &Hub{looks: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))} }

// entry is a folder that the kernel watches.
type entry struct {
	id    identity
	label string // the path that it was added by, which its events have as long as it is watched
	subs  []*sub
}

// sub is a Watcher's subscription to an entry. Only the Hub uses its fields.
type sub struct {
	entry *entry // nil once the watch has ended or was released
	box   *inbox
	at    string // the folder's path for the Watcher; with only, the path that all its events get
	only  string // if not empty, the only name in the folder that matters
}

// line is one run of the library, with its goroutines.
type line struct {
	lib  *fsnotify.Watcher
	lost chan error
	wg   sync.WaitGroup
}

// join starts sending events to box. Each join must be followed by one leave.
func (h *Hub) join(box *inbox) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line == nil {
		lib, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		l := &line{lib: lib, lost: make(chan error, 1)}
		l.wg.Go(l.fetchErrors)
		l.wg.Go(func() { h.listen(l) })
		h.line, h.byID, h.byLabel, h.inside = l, map[identity]*entry{}, map[string]*entry{}, map[string]map[*entry]bool{}
	}
	h.boxes = append(h.boxes, box)
	return nil
}

// leave ends what join started. The subs of box must have been released. The last leave closes the
// library, and waits until its goroutines have ended.
func (h *Hub) leave(box *inbox) {
	h.mu.Lock()
	h.boxes = slices.DeleteFunc(h.boxes, func(b *inbox) bool { return b == box })
	last := h.line
	if len(h.boxes) > 0 {
		last = nil
	} else {
		h.line, h.boxes, h.byID, h.byLabel, h.inside = nil, nil, nil, nil, nil
	}
	h.mu.Unlock()
	if last != nil {
		_ = last.lib.Close() // if closing fails, the descriptor is closed as well
		last.wg.Wait()
	}
}

// watch sends the events directly inside dir, which may be a link, to box. If only is empty, their
// paths are relative to at; else only events of that name in dir are sent, all with the path at.
// Events of dir itself have the path at. Events that were under way may be older than the watch.
func (h *Hub) watch(box *inbox, dir, only, at string) (*sub, error) {
	for range 10 {
		id, err := identify(dir)
		if err != nil {
			return nil, err
		}
		s := &sub{box: box, at: at, only: only}
		if err := h.add(s, dir, id); err != nil {
			return nil, err
		}
		if now, err := identify(dir); err == nil && now == id {
			return s, nil
		}
		h.release(s) // another folder replaced it at that moment
	}
	return nil, fs.ErrNotExist // it keeps changing: the next one to make it causes an event
}

func (h *Hub) add(s *sub, dir string, id identity) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	// The library knows a watch by the path it was added by. That path may now lead to another folder,
	// which may already be watched under another path.
	if e != nil && e.label != dir {
		if now, err := identify(e.label); err != nil || now != id {
			h.drop(e)
			e = nil
		}
	}
	label := dir
	if e != nil {
		label = e.label
	}
	if other := h.byLabel[label]; other != nil && other != e {
		h.drop(other)
	}
	// Add it even if there is an entry: its watch may have ended, and the event that says so may be
	// under way.
	if err := h.line.lib.Add(label); err != nil {
		return err
	}
	if e == nil {
		e = &entry{id: id, label: label}
		h.keep(e)
	}
	s.entry = e
	e.subs = append(e.subs, s)
	return nil
}

// keep adds a new entry. From now on the library expects this folder's watch to report the end of
// folders in it, so folders in it that ended before have to be watched again. The caller holds h.mu.
func (h *Hub) keep(e *entry) {
	h.byID[e.id], h.byLabel[e.label] = e, e
	dir := filepath.Dir(e.label)
	if h.inside[dir] == nil {
		h.inside[dir] = map[*entry]bool{}
	}
	h.inside[dir][e] = true
	for child := range h.inside[e.label] {
		if now, err := identify(child.label); err != nil || now != child.id {
			h.drop(child)
		}
	}
}

// release ends a sub. The watch may be gone already, and s may be nil.
func (h *Hub) release(s *sub) {
	if s == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e := s.entry
	if e == nil {
		return
	}
	s.entry = nil
	e.subs = slices.DeleteFunc(e.subs, func(o *sub) bool { return o == s })
	if len(e.subs) == 0 {
		h.drop(e)
	}
}

// drop removes an entry, and makes its subscribers look again. The caller holds h.mu.
func (h *Hub) drop(e *entry) {
	delete(h.byID, e.id)
	delete(h.byLabel, e.label)
	dir := filepath.Dir(e.label)
	delete(h.inside[dir], e)
	if len(h.inside[dir]) == 0 {
		delete(h.inside, dir)
	}
	unwatch(h.line.lib, e.label)
	for _, s := range e.subs {
		s.entry = nil
		s.box.put(s.at, lookAgain)
	}
}

// unwatch ends a watch, which the kernel may have ended already. If a watched folder replaces
// another one and is added under its name, the library keeps the name without a watch and panics
// here (fsnotify 1.10.1, watches.updatePath and removePath). The library's lock is released then,
// and there is no watch to end.
func unwatch(lib *fsnotify.Watcher, path string) {
	defer func() { _ = recover() }()
	_ = lib.Remove(path)
}

// fetchErrors never calls the library: the library sends some errors while it holds the lock that
// Add needs, so a goroutine that did both, or waited for one that does, would deadlock.
func (l *line) fetchErrors() {
	for err := range l.lib.Errors {
		// A folder that was moved and then removed: its watch had already ended.
		if errors.Is(err, syscall.EINVAL) {
			continue
		}
		select {
		case l.lost <- err:
		default: // one pending error is enough
		}
	}
}

// listen passes events on until the line ends.
func (h *Hub) listen(l *line) {
	for {
		select {
		case ev, open := <-l.lib.Events:
			if !open {
				return
			}
			h.passOrLose(l, filepath.Clean(ev.Name), ev.Op)
		case err := <-l.lost:
			h.lose(l, err)
		}
	}
}

// passOrLose is pass. After a panic all Watchers look at everything again.
func (h *Hub) passOrLose(l *line, path string, op fsnotify.Op) {
	defer func() {
		if p := recover(); p != nil {
			h.lose(l, fmt.Errorf("panic over an event: %v\n%s", p, debug.Stack()))
		}
	}()
	h.pass(l, path, op)
}

// pass puts an event into the inboxes of the Watchers that it concerns.
func (h *Hub) pass(l *line, path string, op fsnotify.Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l != h.line {
		return // a late event of a line that was closed
	}
	dir, name := filepath.Split(path)
	if e := h.byLabel[filepath.Clean(dir)]; e != nil {
		for _, s := range e.subs {
			switch s.only {
			case "":
				s.box.put(filepath.Join(s.at, name), op)
			case name:
				s.box.put(s.at, op)
			}
		}
	}
	// The kernel or the library may have ended the watch. Watchers that still find the folder watch it
	// again.
	if e := h.byLabel[path]; e != nil {
		for _, s := range e.subs {
			s.box.put(s.at, op)
		}
	}
}

// lose makes all Watchers look at everything again. Only one of them gets the error.
func (h *Hub) lose(l *line, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l != h.line {
		return
	}
	for i, box := range h.boxes {
		if i > 0 {
			err = nil
		}
		box.lose(err)
	}
}

// firstOf reports whether it is called for this limit for the first time.
func (h *Hub) firstOf(limit string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.warned, limit) {
		return false
	}
	h.warned = append(h.warned, limit)
	return true
}

// limitHint says which limit of the kernel was reached, and how to raise it.
func limitHint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "the user's file watches are used up; raise the limit: sysctl -w fs.inotify.max_user_watches=1048576"
	case errors.Is(err, syscall.EMFILE):
		return "the user's inotify instances, or the open files of this process, are used up; raise the limit: sysctl -w fs.inotify.max_user_instances=1024 (or ulimit -n)"
	case errors.Is(err, syscall.ENFILE):
		return "the system's open files are used up; raise the limit: sysctl -w fs.file-max"
	default:
		return ""
	}
}
