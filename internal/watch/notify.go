package watch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// note takes in one event and reports whether it counts, and for which path.
func (w *Watcher) note(ev fsnotify.Event) (path string, counts bool) {
	path = filepath.Clean(ev.Name)
	switch {
	case w.tree.below(path):
		return path, w.noteBelow(path, ev.Op)
	case path == w.root || isBelow(w.root, path):
		return w.root, w.noteRoot(path, ev.Op)
	default: // a neighbour of the root
		return "", false
	}
}

// noteBelow takes in an event of a path inside the root.
func (w *Watcher) noteBelow(path string, op fsnotify.Op) bool {
	info, err := os.Lstat(path)
	if err != nil {
		// Gone. Of what was ignored, or came and went, there is nothing to forget.
		wasFile, wasDir := w.tree.forget(path)
		// A folder that was moved is still watched, under its old name.
		w.doubt = w.doubt || wasDir && op.Has(fsnotify.Rename)
		return wasFile || wasDir
	}
	if w.tree.ignored(path, info.IsDir()) {
		return false
	}
	if info.IsDir() {
		return w.noteDir(path, info.Mode().Perm(), op)
	}
	old, known := w.tree.files[path]
	now := stampOf(info)
	if _, wasDir := w.tree.dirs[path]; wasDir {
		w.tree.forget(path)
	}
	w.tree.files[path] = now
	if known && op == fsnotify.Chmod {
		return old.mode != now.mode || !old.mtime.Equal(now.mtime)
	}
	return true
}

// noteDir takes in an event of a folder inside the root, which is there now.
func (w *Watcher) noteDir(path string, perm fs.FileMode, op fsnotify.Op) bool {
	old, known := w.tree.dirs[path]
	switch {
	case !known || op.Has(fsnotify.Create):
		w.tree.forget(path)
		w.enter(path)
	case op.Has(fsnotify.Rename):
		w.doubt = true // another folder has its name already
	case op == fsnotify.Chmod:
		if old == perm {
			return false
		}
		w.doubt = true // what is in it may have come into reach, or gone out of it
	}
	return true
}

// noteRoot takes in an event of the root itself or of a folder above it.
func (w *Watcher) noteRoot(path string, op fsnotify.Op) bool {
	if path == w.root {
		info, err := os.Stat(w.root)
		_, wasFile := w.tree.files[w.root]
		perm, wasDir := w.tree.dirs[w.root]
		switch {
		case err != nil: // gone: see below
		case wasFile && !info.IsDir():
			old, now := w.tree.files[w.root], stampOf(info)
			w.tree.files[w.root] = now
			return op != fsnotify.Chmod || !old.equal(now)
		case wasDir && info.IsDir() && op == fsnotify.Chmod:
			w.doubt = w.doubt || perm != info.Mode().Perm()
			return perm != info.Mode().Perm()
		}
	} else if op == fsnotify.Chmod {
		return false
	}
	existed := w.tree.exists()
	w.renew()
	return existed || w.tree.exists()
}

// enter watches and records a folder that has appeared.
func (w *Watcher) enter(dir string) {
	if err := w.tree.scan(dir, w.notes.add); err != nil {
		w.pollInstead(err)
		w.rescan()
	}
}

// renew sets all watches afresh and records what is there. It is the answer to
// every doubt: folders that were moved keep reporting their old names, and a
// watch of a folder that was replaced reports nothing at all. Events still
// unread are dropped with the old watches; they are older than the Change that
// follows.
func (w *Watcher) renew() {
	w.stopNotes()
	w.doubt = false
	if !w.poll {
		next, err := w.watchAll()
		if err == nil {
			w.tree = next
			return
		}
		w.pollInstead(err)
	}
	w.rescan()
}

// watchAll sets every watch and returns the tree it found on the way.
func (w *Watcher) watchAll() (*tree, error) {
	notes, err := newNotifier()
	if err != nil {
		return nil, err
	}
	w.notes = notes
	if err := notes.addAbove(w.root); err != nil {
		return nil, err
	}
	next := newTree(w.root, w.tree.ignore)
	return next, next.scan(w.root, notes.add)
}

// pollInstead gives up on events for good and says why, once.
func (w *Watcher) pollInstead(err error) {
	if w.poll {
		return
	}
	w.poll = true
	w.stopNotes()
	args := []any{"path", w.root, "err", err}
	if hint := limitHint(err); hint != "" {
		args = append(args, "hint", hint)
	}
	w.log.Error("cannot watch for file events: reading the folder once a second instead", args...)
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

func (w *Watcher) stopNotes() {
	w.notes.close()
	w.notes = nil
}

// notifier is one set of the kernel's watches. Its zero, nil, hears nothing.
type notifier struct {
	fs   *fsnotify.Watcher
	lost chan error
	wg   sync.WaitGroup
}

func newNotifier() (*notifier, error) {
	f, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	n := &notifier{fs: f, lost: make(chan error, 1)}
	// Errors are fetched by a goroutine that never calls the library: it sends
	// some of them under the lock that Add takes, so a loop that does both
	// can wait for itself.
	n.wg.Go(func() {
		for err := range f.Errors {
			select {
			case n.lost <- err:
			default: // one is as good as many
			}
		}
	})
	return n, nil
}

func (n *notifier) events() <-chan fsnotify.Event {
	if n == nil {
		return nil
	}
	return n.fs.Events
}

// trouble delivers errors after which events may be missing, overflow above all.
func (n *notifier) trouble() <-chan error {
	if n == nil {
		return nil
	}
	return n.lost
}

// add watches what is directly inside dir. Adding it twice is harmless.
func (n *notifier) add(dir string) error { return n.fs.Add(dir) }

// addAbove watches what tells that root comes, goes or is replaced: the nearest
// folder above it that exists, and the folder of each link on the way to it.
func (n *notifier) addAbove(root string) error {
	for dir := filepath.Dir(root); ; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && info.Mode().Type() == fs.ModeSymlink {
			if err := unlessLeftOut(n.add(filepath.Dir(dir))); err != nil {
				return err
			}
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for {
		dir := nearest(root)
		if err := unlessLeftOut(n.add(dir)); err != nil {
			return err
		}
		// The next folder may have been made before the watch was there.
		if nearest(root) == dir {
			return nil
		}
	}
}

// nearest returns the deepest folder above path that exists.
func nearest(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

// close drops the watches and waits for the goroutines behind them.
func (n *notifier) close() {
	if n == nil {
		return
	}
	// It can only fail to close a descriptor, which is then gone as well.
	_ = n.fs.Close()
	n.wg.Wait()
}
