package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Hub is what the Watchers of a process share: one of the kernel's few
// instances for file events, and one watch for each folder, however many of
// them want it. It is there, with its goroutines, as long as one of its
// Watchers serves. All methods may be called from any goroutine.
type Hub struct {
	mu      sync.Mutex // guards what follows; held while the library is asked
	line    *line      // nil while nobody listens
	boxes   []*inbox   // of those who listen
	byID    map[identity]*entry
	byLabel map[string]*entry
	inside  map[string]map[*entry]bool // entries by the folder that their label is in
	warned  []string                   // limits that the log has heard of
}

// NewHub makes a Hub. Give it to all Watchers of the process.
func NewHub() *Hub { return &Hub{} }

// entry is one folder that the kernel watches.
type entry struct {
	id    identity
	label string // the path it was added by, under which its events come for as long as it is watched
	subs  []*sub
}

// sub is what one Watcher wants of an entry. Only the Hub looks inside.
type sub struct {
	entry *entry // nil once the watch has been dropped or released
	box   *inbox
	at    string // what the Watcher calls the folder; with only, what it is told instead
	only  string // the one name in the folder that matters, if not empty
}

// line is one life of the library, with the goroutines that listen to it.
type line struct {
	lib  *fsnotify.Watcher
	lost chan error
	wg   sync.WaitGroup
}

// join begins to fill box. Each join is to be followed by one leave.
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

// leave ends what join began. The box's subs have been released. With the last
// box all goes, and leave waits for it.
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
		_ = last.lib.Close() // it can only fail to close a descriptor, which is then gone as well
		last.wg.Wait()
	}
}

// watch puts what happens directly inside dir, which may be a link, into box:
// with the path that at is the folder's name in, or, if only is not empty, with
// the path at for the one name in dir that matters. What happens to dir itself
// is put there with the path at. Events under way may be older than the watch.
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
		h.release(s) // another folder took its place at that moment
	}
	return nil, fs.ErrNotExist // it has no rest: whoever makes it anew tells us
}

func (h *Hub) add(s *sub, dir string, id identity) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[id]
	// The library knows a watch by the path it was added by. That path may
	// lead elsewhere now, and that folder may be watched by another.
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
	// Also if there is an entry: its watch may have ended, and the event that
	// says so be under way.
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

// keep remembers a new entry. From now on the library leaves it to this folder to tell
// of the end of folders in it: those that ended before, nobody tells of. The caller
// holds h.mu.
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

// release ends a sub. It is harmless if the watch has gone, or s is nil.
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

// drop forgets an entry, and has those who wanted it look again. The caller
// holds h.mu.
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

// unwatch ends a watch, which the kernel may have ended already. When a watched
// folder takes the place of another and is added under that name, the library
// keeps the name without its watch, and panics over it here (fsnotify 1.10.1,
// watches.updatePath and removePath). Its lock is released then, and nothing is
// left to be ended. By itself it ends only watches that it has.
func unwatch(lib *fsnotify.Watcher, path string) {
	defer func() { _ = recover() }()
	_ = lib.Remove(path)
}

// fetchErrors never calls the library: that sends some errors under the lock
// that Add takes, so whoever does both, or waits for who does, waits for itself.
func (l *line) fetchErrors() {
	for err := range l.lib.Errors {
		// A folder that was moved and then removed: its watch had ended.
		if errors.Is(err, syscall.EINVAL) {
			continue
		}
		select {
		case l.lost <- err:
		default: // one is as good as many
		}
	}
}

// listen passes on events until the line ends.
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

// passOrLose is pass. After a panic everybody looks at everything again.
func (h *Hub) passOrLose(l *line, path string, op fsnotify.Op) {
	defer func() {
		if p := recover(); p != nil {
			h.lose(l, fmt.Errorf("panic over an event: %v\n%s", p, debug.Stack()))
		}
	}()
	h.pass(l, path, op)
}

// pass puts an event into the boxes that it concerns.
func (h *Hub) pass(l *line, path string, op fsnotify.Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l != h.line {
		return // a late word of what was closed
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
	// If the kernel or the library has ended the watch, those who still find the
	// folder there watch it again.
	if e := h.byLabel[path]; e != nil {
		for _, s := range e.subs {
			s.box.put(s.at, op)
		}
	}
}

// lose has everybody look at everything again. One says why.
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

// firstOf reports whether nobody has asked about this limit before.
func (h *Hub) firstOf(limit string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.Contains(h.warned, limit) {
		return false
	}
	h.warned = append(h.warned, limit)
	return true
}

// limitHint says which of the kernel's limits was met, and how to raise it.
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
