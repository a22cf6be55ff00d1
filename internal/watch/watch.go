// Package watch turns file events into one debounced signal: "something below
// this folder changed, look again". It knows nothing of tools, and it does not
// say what changed beyond naming one file for the log; whoever listens reads the
// folder anew.
//
//	events ─► tree (counts?) ─► burst (quiet yet?) ─► watches complete ─► Changed
//
// Its invariant: when a Change is sent, every folder below the root is watched,
// or polled. What the watches missed therefore happened before the Change, and
// is seen by whoever reads the folder after it.
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

	// Poll reads the whole tree once a second instead of asking the kernel for
	// events, for file systems that send none (NFS, some container mounts).
	Poll bool

	// Log gets a line when the kernel's limits or an overflow get in the way. If
	// nil, nothing is logged.
	Log *slog.Logger
}

// Change says that files below the root are no longer what they were.
type Change struct {
	// Path names the first file of the burst, or the root when the kernel
	// dropped the events that would have named one. It is absolute.
	Path string

	// At is when the last event of the burst was read.
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

	// Owned by Serve.
	tree  *tree     // what is below the root, as far as we have been told
	notes *notifier // nil while polling
	doubt bool      // the watches may not match the folders: renew them before the next Change
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
	w := &Watcher{
		root:     root,
		poll:     opts.Poll,
		log:      opts.Log,
		changed:  make(chan Change, 1),
		debounce: opts.Debounce,
		maxWait:  opts.MaxWait,
		tree:     newTree(root, opts.Ignore),
	}
	// A tree that cannot be read now is an empty one; Serve reads it again and
	// says what is wrong.
	_ = w.tree.scan(root, nil)
	return w
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
// When the kernel has no watches left, Serve says so once in the log and polls.
func (w *Watcher) Serve(ctx context.Context) error {
	defer w.stopNotes()
	b := newBurst(w.debounce, w.maxWait)
	defer b.stop()

	var ticks <-chan time.Time // nil as long as the kernel tells us: nothing wakes up in vain

	before := w.tree
	w.renew()
	if path, differs := before.diff(w.tree); differs {
		b.add(path)
	}
	for {
		if w.notes == nil && ticks == nil {
			poll := time.NewTicker(pollInterval)
			defer poll.Stop()
			ticks = poll.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev, open := <-w.notes.events():
			if !open {
				w.doubt = true
				b.add(w.root)
			} else if path, counts := w.note(ev); counts {
				b.add(path)
			}
		case err := <-w.notes.trouble():
			w.log.Warn("file events were lost: reading the folder again", "path", w.root, "err", err)
			w.doubt = true
			b.add(w.root)
		case <-ticks:
			if path, differs := w.rescan(); differs {
				b.add(path)
			}
		case <-b.due():
			if w.doubt && w.notes != nil {
				w.renew()
			}
			w.publish(b.end())
		}
	}
}

// rescan reads the whole tree again and names the first path that is not as it was.
func (w *Watcher) rescan() (path string, differs bool) {
	next := newTree(w.root, w.tree.ignore)
	if err := next.scan(w.root, nil); err != nil {
		// A tree half read must not look like one half deleted: keep the old
		// one, and try again at the next tick.
		w.log.Debug("reading the watched folder", "path", w.root, "err", err)
		return "", false
	}
	path, differs = w.tree.diff(next)
	w.tree = next
	return path, differs
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
