// Package watch turns file events into one debounced signal: "something below this folder changed,
// look again". It knows nothing about tools. It does not say what changed, except for naming one
// file for the log; the listener reads the folder again.
//
//	kernel ─► Hub ─► inbox ─► Watcher: counts? ─► burst: quiet yet? ─► tree: differs? ─► Changed
//
// Its invariant: when a Change is sent, every folder below the root that can contain a path that
// counts is watched or polled. So a change that the watches missed happened before the Change was
// sent, and a listener that reads the folder after it sees the change.
package watch

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	defaultDebounce = 100 * time.Millisecond
	defaultMaxWait  = 2 * time.Second
	pollInterval    = time.Second
)

// Options configures a Watcher. The zero value works.
type Options struct {
	// Debounce is how long no event must come before a burst of events becomes one Change. If zero, 100
	// ms.
	Debounce time.Duration

	// MaxWait is the longest time from the first event of a burst to its Change, if the events do not
	// stop. If zero, 2 s.
	MaxWait time.Duration

	// Ignore reports whether a path is ignored; an ignored folder is not entered. The path is relative
	// to the root, with forward slashes. Ignore is called by Look, and later only from Serve's goroutine.
	// If nil, Ignored.
	Ignore func(path string, isDir bool) bool

	// Paths are the files and folders that count, relative to the root, whether they exist yet or not;
	// "./" means all. Links in the list are followed. They are names, not patterns. If empty, all paths
	// count.
	Paths []string

	// Except are paths, relative to the root, that never count.
	Except []string

	// Globs are lines of a .gitignore at the root; paths that match do not count. "*.log" and "build/"
	// match at any depth, "/out", "./out" and "data/**" from the root, and "!" makes the matches of an
	// earlier line count again. A malformed line matches nothing.
	Globs []string

	// Gitignore ignores the paths that the .gitignore files at the root and below it ignore, unless
	// Paths names them. A change of such a file takes effect at once: paths that become ignored count as
	// removed, paths that are not ignored any more as added. A "!" in them has no effect on paths that
	// Ignore, Except or Globs ignore. At most 1000 rules of one file are read, 4000 of all files
	// together, and none of more than 255 bytes or with more than four "**".
	Gitignore bool

	// Content compares files by their content, their executable bits and their existence; folders by
	// themselves do not count. If everything is the same at the end of a burst as before it, there is no
	// Change. A link counts as the file it leads to. A file over 16 MiB is compared by size and time. If
	// false, every write to a file counts.
	Content bool

	// Hub is shared by the Watchers of a process. If nil, the Watcher has its own.
	Hub *Hub

	// Poll reads the whole tree once a second instead of using the kernel's events. It is for file
	// systems without events (NFS, some container mounts).
	Poll bool

	// Log receives a line when a limit of the kernel or an overflow prevents events. If nil, nothing is
	// logged.
	Log *slog.Logger
}

// Change says that files below the root have changed.
type Change struct {
	// Path names the first file of the burst that differs, or the root if that was replaced as a whole.
	// It is absolute.
	Path string

	// At is when the burst was over: a file that is read later than that is read with its change.
	At time.Time
}

// Watcher watches one folder or file, and everything below it. The root need not exist yet, and may
// go and come back.
type Watcher struct {
	root     string
	poll     bool
	log      *slog.Logger
	changed  chan Change
	debounce time.Duration
	maxWait  time.Duration
	hub      *Hub
	box      *inbox
	sum      atomic.Uint64 // see Sum

	// Owned by Serve, and before it by Look.
	looked  bool
	tree    *tree // the tree, as of the last Change
	pending pending
	told    bool   // that there are more rules than are read
	found   string // the first path that is not what it was and has not been signalled, if any
	polling bool
	subs    map[string][]*sub // while not polling: by folder or link, relative to the root, or rootTrail
}

// Unread returns a Watcher of root that has not read its state: the larger the tree, the longer
// that takes.
func Unread(root string, opts Options) *Watcher {
	if abs, err := filepath.Abs(root); err == nil {
		root = abs
	}
	if opts.Debounce <= 0 {
		opts.Debounce = defaultDebounce
	}
	if opts.MaxWait <= 0 {
		opts.MaxWait = defaultMaxWait
	}
	if opts.Ignore == nil {
		opts.Ignore = Ignored
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Hub == nil {
		opts.Hub = NewHub()
	}
	return &Watcher{
		root:     root,
		poll:     opts.Poll,
		log:      opts.Log,
		changed:  make(chan Change, 1),
		debounce: opts.Debounce,
		maxWait:  opts.MaxWait,
		hub:      opts.Hub,
		box:      newInbox(),
		tree:     newTree(root, newScope(root, opts), opts.Content, opts.Hub.looks),
		polling:  true,
	}
}

// Look reads the present state of the tree, unless ctx ends first: a change between Look and Serve
// is reported as well. Call Look before you read the folder, so that no change is missed in between.
// It must not be called while Serve runs. If nobody has called it, Serve does.
func (w *Watcher) Look(ctx context.Context) {
	// A tree that cannot be read counts as empty; Serve reads it again and logs the error.
	_, _, _ = w.tree.compare(ctx, ".", false, nil)
	w.looked = ctx.Err() == nil
	w.sum.Store(w.tree.sum())
	w.sayRules()
}

// LookFirst is Look for a process that answers no calls yet: it takes the whole machine.
func (w *Watcher) LookFirst(ctx context.Context) {
	w.tree.hurries = true
	defer func() { w.tree.hurries = false }()
	w.Look(ctx)
}

// Sum returns a number that says which files there were at the last Change, or at the last Look, and how they looked:
// their sizes, times and executable bits. Another Watcher with the same Options returns the same number for the same
// files. It may be called from any goroutine.
func (w *Watcher) Sum() uint64 { return w.sum.Load() }

// LeftOut returns a .gitignore of which not all rules are read, since there are too many; "" if no
// look has found one. It must not be called while Serve runs.
func (w *Watcher) LeftOut() string { return w.tree.scope.over() }

// sayRules logs once that there are more rules than are read.
func (w *Watcher) sayRules() {
	if file := w.LeftOut(); file != "" && !w.told {
		w.told = true
		w.log.Warn("too many or too long rules in .gitignore files; the files that the rest name are watched too",
			"file", file)
	}
}

// Changed delivers a Change after each burst of events. It holds one: bursts
// that nobody has fetched yet become one Change with the first one's Path and the last
// one's At. It is never closed. It is for one reader.
func (w *Watcher) Changed() <-chan Change { return w.changed }

// String returns the name of the service for its supervisor's log.
func (w *Watcher) String() string { return "watch " + w.root }

// Serve watches until ctx ends and returns ctx.Err(). It may be called again after it has returned,
// and then reports the changes in between; it must not run twice at once. It leaves no goroutine and
// no watch behind.
//
// If a limit of the kernel is reached, Serve polls. It logs an error with the limit to raise when
// the Hub reaches the limit for the first time, and a warning later. The next Serve tries events
// again.
func (w *Watcher) Serve(ctx context.Context) error {
	if !w.looked {
		w.Look(ctx)
	}
	b := newBurst(w.debounce, w.maxWait)
	defer b.stop()
	w.begin()
	defer w.end()

	var ticks <-chan time.Time // nil unless polling, so that nothing wakes up without need

	if w.settle(ctx); w.found != "" {
		b.add()
	}
	for {
		if w.polling && ticks == nil {
			poll := time.NewTicker(pollInterval)
			defer poll.Stop()
			ticks = poll.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.box.ready:
			if w.drain(ctx) {
				b.add()
			}
		case <-ticks:
			if w.stirred(ctx) {
				b.add()
			}
		case <-b.due():
			// More events belong to the same burst, as long as that may last.
			if w.drain(ctx) && b.add() {
				continue
			}
			w.settle(ctx)
			b.end()
			if w.found != "" {
				w.publish(Change{Path: w.found, At: time.Now()}) // settle may have found a change whose event has not come yet
				w.found = ""
			}
			w.sum.Store(w.tree.sum()) // now, so that who sees it can see the Change
		}
	}
}

// publish sends c, or merges it with the one that was not received. It never blocks.
func (w *Watcher) publish(c Change) {
	select {
	case unread := <-w.changed:
		c.Path = unread.Path
	default:
	}
	select {
	case w.changed <- c:
	default: // cannot happen: only Serve sends, and the buffer was emptied above
	}
}
