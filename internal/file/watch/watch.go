// Package watch turns file events into one debounced signal: "something below
// this folder changed, look again". It knows nothing of tools, and it does not
// say what changed beyond naming one file for the log; whoever listens reads the
// folder anew.
//
//	kernel ─► Hub ─► inbox ─► Watcher: counts? ─► burst: quiet yet? ─► tree: differs? ─► Changed
//
// Its invariant: when a Change is sent, every folder below the root that can
// hold what counts is watched, or polled. What the watches missed therefore
// happened before the Change, and is seen by whoever reads the folder after it.
package watch

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"
)

const (
	defaultDebounce = 100 * time.Millisecond
	defaultMaxWait  = 2 * time.Second
	pollInterval    = time.Second
)

// Options says how a Watcher behaves. The zero value works.
type Options struct {
	// Debounce is how long it must have been quiet before a burst of events
	// becomes one Change. If zero, 100 ms.
	Debounce time.Duration

	// MaxWait is the longest a burst that never falls quiet can hold back its
	// Change, counted from its first event. If zero, 2 s.
	MaxWait time.Duration

	// Ignore reports whether a path counts for nothing; an ignored folder is not
	// entered. The path is relative to the root, with forward slashes. It is
	// called by New, and then only from Serve's goroutine. If nil, Ignored.
	Ignore func(path string, isDir bool) bool

	// Paths are the files and folders that count, relative to the root, whether
	// they are there yet or not; "./" is all. One that is a link is followed.
	// They are names, not patterns. If empty, all.
	Paths []string

	// Except are the paths, relative to the root, that never count.
	Except []string

	// Globs are lines of a .gitignore at the root: what they match counts for
	// nothing. "*.log" and "build/" match at any depth, "/out", "./out" and
	// "data/**" from the root, and "!" brings back what an earlier line took out.
	// A malformed line matches nothing.
	Globs []string

	// Gitignore leaves out what the .gitignore files at the root and below it
	// say, unless Paths names it. A change of such a file takes effect at once:
	// what it takes out counts as removed, what it brings in as added. A "!"
	// there brings back nothing that Ignore, Except or Globs left out.
	Gitignore bool

	// Content makes files count by what is in them, by their executable bits,
	// and by whether they are there; folders count for nothing by themselves.
	// What is as it was at the end of a burst makes no Change. A link counts as
	// the file it leads to. A file over 16 MiB counts by its size and time. If
	// false, a file counts as soon as it is written.
	Content bool

	// Hub is what the Watchers of a process share. If nil, one of its own.
	Hub *Hub

	// Poll reads the whole tree once a second instead of asking the kernel for
	// events, for file systems that send none (NFS, some container mounts).
	Poll bool

	// Log gets a line when the kernel's limits or an overflow get in the way. If
	// nil, nothing is logged.
	Log *slog.Logger
}

// Change says that files below the root are no longer what they were.
type Change struct {
	// Path names the first file of the burst that is not what it was, or the
	// root if that was replaced as a whole. It is absolute.
	Path string

	// At is when the burst was over: whoever reads a file that it changed later than
	// that sees the change.
	At time.Time
}

// Watcher watches one folder, or one file, and all that is below it. The root
// need not exist yet, and may go and come back.
type Watcher struct {
	root     string
	poll     bool
	log      *slog.Logger
	changed  chan Change
	debounce time.Duration
	maxWait  time.Duration
	hub      *Hub
	box      *inbox

	// Owned by Serve.
	tree    *tree // what is below the root, as far as it has been signalled
	pending pending
	told    bool   // that there are more rules than are read
	found   string // the first path that is not what it was and has not been signalled, if any
	polling bool
	subs    map[string][]*sub // while not polling: by folder or link, relative to the root, or rootTrail
}

// New makes a Watcher of root and remembers what is there now: a change made
// between New and Serve is signalled too. Call it before reading the folder, and
// no change can slip between the two.
func New(root string, opts Options) *Watcher {
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
	w := &Watcher{
		root:     root,
		poll:     opts.Poll,
		log:      opts.Log,
		changed:  make(chan Change, 1),
		debounce: opts.Debounce,
		maxWait:  opts.MaxWait,
		hub:      opts.Hub,
		box:      newInbox(),
		tree:     newTree(root, newScope(root, opts), opts.Content),
		polling:  true,
	}
	// A tree that cannot be read now is an empty one; Serve reads it again and
	// says what is wrong.
	_, _, _ = w.tree.compare(".", false, nil)
	w.sayRules()
	return w
}

// sayRules says once that there are more rules than are read.
func (w *Watcher) sayRules() {
	if file := w.tree.scope.over(); file != "" && !w.told {
		w.told = true
		w.log.Warn("not all rules of .gitignore files are read, as there are too many: what the rest names counts",
			"file", file, "most_of_a_file", maxRules, "most_of_all", maxAllRules, "most_bytes_of_a_rule", maxRule)
	}
}

// Changed delivers a Change after each burst of events. It holds one: bursts
// that nobody has fetched yet become one Change with the first one's Path and the last
// one's At. It is never closed. It is for one reader.
func (w *Watcher) Changed() <-chan Change { return w.changed }

// String names the service in the logs of its supervisor.
func (w *Watcher) String() string { return "watch " + w.root }

// Serve watches until ctx ends and returns ctx.Err(). It may be called again
// after it has returned, and then signals what changed in between; it must not
// run twice at once. It leaves no goroutine and no watch behind.
//
// Past one of the kernel's limits it polls, and says so in the log: as an error
// with the limit to raise the first time that the Hub meets it, and then as a
// warning. The next Serve tries events again.
func (w *Watcher) Serve(ctx context.Context) error {
	b := newBurst(w.debounce, w.maxWait)
	defer b.stop()
	w.begin()
	defer w.end()

	var ticks <-chan time.Time // nil as long as the kernel tells us: nothing wakes up in vain

	if w.settle(); w.found != "" {
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
			if w.drain() {
				b.add()
			}
		case <-ticks:
			if w.stirred() {
				b.add()
			}
		case <-b.due():
			// What is under way belongs to the burst, as long as that may last.
			if w.drain() && b.add() {
				continue
			}
			w.settle()
			b.end()
			if w.found != "" {
				w.publish(Change{Path: w.found, At: time.Now()}) // settle may have seen what no event has told yet
				w.found = ""
			}
		}
	}
}

// publish puts c where the reader finds it, and never waits for the reader.
func (w *Watcher) publish(c Change) {
	select {
	case unread := <-w.changed:
		c.Path = unread.Path
	default:
	}
	select {
	case w.changed <- c:
	default: // cannot be: only Serve sends, and the place was made free above
	}
}
