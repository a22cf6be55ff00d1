package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// came are the operations that happen to a path when something else replaces it.
const came = fsnotify.Create | fsnotify.Remove | fsnotify.Rename

// rootTrail is the key of the subs that watch where the root is.
const rootTrail = ""

// drain takes the notes from the inbox, and reports whether any of them counts.
func (w *Watcher) drain(ctx context.Context) (counts bool) {
	defer w.tree.scope.resting(breathing(ctx))()
	notes, lost, err := w.box.take()
	if err != nil {
		w.log.Warn("file events were lost: reading the watched folders again", "path", w.root, "err", err)
	}
	for _, n := range notes {
		counts = w.note(ctx, n) || counts
	}
	if lost {
		w.pending.all = true
		w.renew(ctx)
	}
	return counts || lost
}

// note records one event, and reports whether it may count. settle finds out later what it has
// changed. note watches new folders at once, so that events in them belong to the same burst.
func (w *Watcher) note(ctx context.Context, n note) bool {
	if n.path == w.root {
		return w.noteRoot(ctx, n.op)
	}
	rel, inside := w.tree.rel(n.path)
	if !inside {
		return false
	}
	scope := w.tree.scope
	isRules := scope.isRules(rel)
	if isRules {
		scope.forgetRules(path.Dir(rel))
		w.pending.all = true
	}
	if scope.skips(rel, false) && scope.skips(rel, true) {
		return isRules
	}
	was, known := w.tree.seen[rel]
	now, _, err := w.tree.look(rel)
	t := touched{path: rel, written: n.op&^(fsnotify.Chmod|lookAgain) != 0}
	switch {
	case err != nil:
		// Gone. If it came and went within the burst, nothing has changed.
		if !known && !w.pending.has(rel) && w.subs[rel] == nil {
			return isRules
		}
		t.tree = was.mode.IsDir() || w.subs[rel] != nil
	case scope.skips(rel, now.mode.IsDir()):
		return isRules
	case n.op == fsnotify.Chmod && known && was.looks(now):
		return isRules // other permissions, or the access time
	case now.mode.IsDir():
		t.tree, t.written = true, n.op&came != 0
		w.cover(ctx, rel)
	}
	w.pending.touch(t)
	return true
}

// noteRoot records an event of the root, or of a step on the way to it.
func (w *Watcher) noteRoot(ctx context.Context, op fsnotify.Op) bool {
	if op&lookAgain != 0 {
		w.renew(ctx)
		w.pending.all = true
		w.pending.replaced = w.pending.replaced || op&came != 0
		return true
	}
	was, existed := w.tree.seen["."]
	if op&came == 0 {
		now, _, err := w.tree.look(".")
		if err != nil || op == fsnotify.Chmod && existed && was.looks(now) {
			return false
		}
		w.pending.touch(touched{path: ".", written: op != fsnotify.Chmod && !now.mode.IsDir(), tree: now.mode.IsDir() || was.mode.IsDir()})
		return true
	}
	w.renew(ctx)
	if _, _, err := w.tree.look("."); err != nil && !existed {
		return false
	}
	w.pending.all, w.pending.replaced = true, true
	return true
}

// renew finds the root again and watches everything below it.
func (w *Watcher) renew(ctx context.Context) {
	if w.polling {
		return
	}
	if err := w.followRoot(); err != nil {
		w.pollInstead(err)
		return
	}
	w.cover(ctx, ".")
}

// cover watches rel and all folders below it.
func (w *Watcher) cover(ctx context.Context, rel string) {
	if w.polling {
		return
	}
	if err := w.tree.walk(ctx, rel, w.enter, func(string, stamp) {}); err != nil && ctx.Err() == nil {
		w.pollInstead(err)
	}
}

// followRoot watches the steps that lead to the root.
func (w *Watcher) followRoot() error {
	return w.follow(rootTrail, w.root, func() []step { return trail(string(filepath.Separator), w.root) })
}

// enter watches a folder, or the steps that lead to the target of a link.
func (w *Watcher) enter(rel string, link bool) error {
	abs := w.tree.abs(rel)
	if !link {
		s, err := w.hub.watch(w.box, abs, "", abs)
		if err != nil {
			return err
		}
		w.replace(rel, []*sub{s})
		return nil
	}
	return w.follow(rel, abs, func() []step {
		dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
		if err != nil {
			return nil
		}
		// The first step is the link itself, whose folder is watched anyway.
		steps := trail(dir, filepath.Base(abs))
		return steps[min(1, len(steps)):]
	})
}

// maxTries is how often follow tries to watch steps that change all the time.
const maxTries = 100

// follow watches the steps that find returns, under key, and reports events there as events of at.
func (w *Watcher) follow(key, at string, find func() []step) error {
	for range maxTries {
		steps := find()
		var subs []*sub
		gone := false
		for _, s := range steps {
			one, err := w.hub.watch(w.box, s.dir, s.name, at)
			gone = gone || errors.Is(err, fs.ErrNotExist)
			if err := unlessLeftOut(err); err != nil {
				w.replace(key, subs)
				return err
			}
			if one != nil {
				subs = append(subs, one)
			}
		}
		w.replace(key, subs)
		// A step may have been made or moved before it was watched. A folder that was gone when it was to
		// be watched may be back already, so that the steps look the same: nothing would tell of it.
		if !gone && slices.Equal(find(), steps) {
			return nil
		}
	}
	return fmt.Errorf("the way to %s changes all the time", at)
}

// replace replaces the subs under key.
func (w *Watcher) replace(key string, subs []*sub) {
	old := w.subs[key]
	w.subs[key] = subs
	for _, s := range old {
		w.hub.release(s)
	}
}

// release releases the subs of rel and of everything below it, except those in keep.
func (w *Watcher) release(rel string, keep map[string]bool) {
	for key, subs := range w.subs {
		if key == rootTrail || !within(key, rel) || keep[key] {
			continue
		}
		for _, s := range subs {
			w.hub.release(s)
		}
		delete(w.subs, key)
	}
}

// compare looks at rel again, watches the folders that exist and releases those that do not.
func (w *Watcher) compare(ctx context.Context, t touched) (first string, differs bool) {
	if w.polling {
		first, differs, err := w.tree.compare(ctx, t.path, t.written, nil)
		if err != nil {
			// A tree that was read only in part must not look like one with deletions: keep the old
			// state, which will differ at the next tick.
			w.log.Debug("reading the watched folder", "path", w.root, "err", err)
		}
		return first, differs
	}
	entered := map[string]bool{}
	first, differs, err := w.tree.compare(ctx, t.path, t.written, func(rel string, link bool) error {
		entered[rel] = true
		return w.enter(rel, link)
	})
	if err != nil {
		if ctx.Err() != nil {
			return "", false
		}
		w.pollInstead(err)
		return w.compare(ctx, t)
	}
	if t.tree || w.subs[t.path] != nil {
		w.release(t.path, entered)
	}
	return first, differs
}

// settle finds out what the burst has changed: the first path that really differs becomes w.found.
func (w *Watcher) settle(ctx context.Context) {
	defer w.sayRules()
	burst := w.pending.take()
	first := func(rel string, differs bool) {
		if differs && w.found == "" {
			w.found = w.tree.abs(rel)
		}
	}
	for _, t := range burst.list {
		if t.tree && burst.all {
			continue // compared below
		}
		first(w.compare(ctx, t))
	}
	if !burst.all {
		return
	}
	_, existed := w.tree.seen["."]
	first(w.compare(ctx, touched{path: ".", tree: true}))
	_, exists := w.tree.seen["."]
	if w.tree.content {
		// A process whose working directory was the old root is nowhere now, even if the new one looks
		// the same.
		first(".", burst.replaced && existed && exists)
	} else {
		first(".", burst.replaced && (existed || exists))
	}
}

// begin starts listening or polling, and marks everything to be compared.
func (w *Watcher) begin() {
	w.pending = pending{all: true}
	w.polling = w.poll
	if !w.polling {
		if err := w.hub.join(w.box); err != nil {
			w.polling = true
			w.complain(err)
		} else {
			w.subs = map[string][]*sub{}
			// The folders are watched while they are compared.
			if err := w.followRoot(); err != nil {
				w.pollInstead(err)
			}
		}
	}
}

// end releases everything that the Hub has for w.
func (w *Watcher) end() {
	if w.polling {
		return
	}
	for _, subs := range w.subs {
		for _, s := range subs {
			w.hub.release(s)
		}
	}
	w.subs = nil
	w.hub.leave(w.box)
	_, _, _ = w.box.take() // the rest is not needed
}

// pollInstead switches to polling for this run, and logs why.
func (w *Watcher) pollInstead(err error) {
	if w.polling {
		return
	}
	w.end()
	w.polling = true
	w.complain(err)
}

// complain logs why there are no events. It names the limit to raise only once.
func (w *Watcher) complain(err error) {
	const msg = "cannot watch for file events: reading the folder once a second instead"
	hint := limitHint(err)
	switch {
	case hint == "":
		w.log.Error(msg, "path", w.root, "err", err)
	case w.hub.firstOf(hint):
		w.log.Error(msg, "path", w.root, "err", err, "hint", hint)
	default:
		w.log.Warn(msg, "path", w.root, "err", err)
	}
}

// stirred reports whether anything looks different than at the last look.
func (w *Watcher) stirred(ctx context.Context) bool {
	differs, err := w.tree.stirred(ctx)
	if err != nil {
		w.log.Debug("reading the watched folder", "path", w.root, "err", err)
		return false
	}
	w.pending.all = w.pending.all || differs
	return differs
}
