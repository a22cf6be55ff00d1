// Package files watches the files of a capsule, so that it is reloaded when they change
// (SPEC E1), and notices a capsule that itself writes a file that is watched.
package files

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/manifest"
)

const (
	// A capsule that one file reloads more than maxFlaps times within flapWindow probably
	// writes the file itself (SPEC E3).
	flapWindow = time.Minute
	maxFlaps   = 10
)

// Watcher watches the files of one capsule.
type Watcher struct {
	tool    manifest.Tool
	log     *slog.Logger
	all     []*watch.Watcher
	changes <-chan watch.Change // nil when nothing is watched
	merged  chan watch.Change   // of several watchers; nil for one
	flaps   flaps               // owned by the goroutine that calls Reloads
}

// New returns a Watcher of the files that the manifest of a tool lists. hub may be nil.
// Manifests are left out: their changes are applied by a reload of Orla (SPEC E1). It
// does not look at the files: Look does.
func New(tool manifest.Tool, hub *watch.Hub, log *slog.Logger) *Watcher {
	h := tool.Runtime.HotLoad
	w := &Watcher{tool: tool, log: log, all: watchers(tool, watch.Options{
		Hub: hub, Content: true,
		Debounce: max(h.Debounce, 1), // 0 is the watcher's default
		Log:      log.With("tool", tool.Name),
	})}
	switch {
	case len(h.Outside) > 0:
		w.merged = make(chan watch.Change)
		w.changes = w.merged
	case len(w.all) > 0:
		w.changes = w.all[0].Changed()
	}
	return w
}

// Changed delivers the changes; nil when nothing is watched.
func (w *Watcher) Changed() <-chan watch.Change { return w.changes }

// watchers returns what watches the files of a tool with opts, which say nothing of the files.
func watchers(tool manifest.Tool, opts watch.Options) (all []*watch.Watcher) {
	h := tool.Runtime.HotLoad
	opts.Globs, opts.Gitignore = h.Ignore, true
	for _, path := range h.Outside {
		all = append(all, watch.Unread(path, opts))
	}
	if len(h.Watch) > 0 {
		opts.Paths, opts.Except = h.Watch, []string{"tool.yaml", "orla-tool.json"}
		all = append(all, watch.Unread(tool.Dir, opts))
	}
	return all
}

// RulesLeftOut returns a .gitignore of a tool of which not all rules are read, since there are
// too many; "" if there is none.
func RulesLeftOut(ctx context.Context, tool manifest.Tool) string {
	for _, one := range watchers(tool, watch.Options{}) {
		one.Look(ctx)
		if file := one.LeftOut(); file != "" {
			return file
		}
	}
	return ""
}

// Look remembers what the files are now, unless ctx ends first. What changes after it is
// delivered. Call it before a process reads the files, and before Serve.
func (w *Watcher) Look(ctx context.Context) {
	for _, one := range w.all {
		one.Look(ctx)
	}
}

// Sum says which files there were at the last change, or at Look; see watch.Watcher.Sum.
func (w *Watcher) Sum() (all uint64) {
	for _, one := range w.all {
		all += one.Sum()
	}
	return all
}

// Serve watches in goroutines of helpers until ctx ends. A panic of one calls stop.
func (w *Watcher) Serve(ctx context.Context, helpers *sync.WaitGroup, stop func()) {
	for _, one := range w.all {
		helpers.Go(func() {
			defer recovered.To(w.log, "watch a capsule's files", func(any) { stop() }) // the capsule is started again
			_ = one.Serve(ctx)                                                         // it ends by ctx alone
		})
		if w.merged != nil {
			helpers.Go(func() { w.forward(ctx, one.Changed()) })
		}
	}
}

// forward makes the changes of several watchers one channel.
func (w *Watcher) forward(ctx context.Context, from <-chan watch.Change) {
	for {
		select {
		case change := <-from:
			select {
			case w.merged <- change:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Reloads reports whether a change reloads the capsule, and why. It does not if one file has
// made too many reloads. It must be called by one goroutine.
func (w *Watcher) Reloads(change watch.Change) (reason string, reload bool) {
	name := change.Path
	if rel, err := filepath.Rel(w.tool.Dir, change.Path); err == nil && filepath.IsLocal(rel) {
		name = rel
	}
	if _, err := os.Stat(w.tool.Source); errors.Is(err, fs.ErrNotExist) {
		return "", false // the package is being removed or replaced; when it is back, files change again
	}
	reload, suspended := w.flaps.count(name, time.Now())
	if suspended {
		w.log.Error("one file has made the capsule reload too often; does it write the file itself? Changes count again after a quiet minute; orla restart loads the current files. To leave the file out, list it under runtime.hot_load.ignore",
			"tool", w.tool.Name, "file", name, "reloads", maxFlaps, "within_ms", flapWindow.Milliseconds())
	}
	return name + " changed", reload
}

// WithFreshCode keeps Python from writing bytecode next to code that is watched. Python
// compares times in seconds: after two saves within a second, the next process could run the
// bytecode of the first.
func WithFreshCode(environ []string, tool manifest.Tool) []string {
	const name = "PYTHONDONTWRITEBYTECODE="
	given := func(kv string) bool { return strings.HasPrefix(kv, name) }
	if h := tool.Runtime.HotLoad; len(h.Watch)+len(h.Outside) == 0 || slices.ContainsFunc(environ, given) {
		return environ
	}
	return append(environ, name+"1")
}

// flaps detects that one file reloads a capsule again and again.
type flaps struct {
	times     map[string][]time.Time // of the last reloads, by the file that made them
	suspended bool
	last      time.Time // of the last change while suspended
}

// count counts a change of a file. It reports whether it may reload the
// capsule, and whether watching is suspended from this change on.
func (f *flaps) count(name string, now time.Time) (reload, suspended bool) {
	if f.suspended {
		if now.Sub(f.last) < flapWindow {
			f.last = now
			return false, false
		}
		*f = flaps{}
	}
	if f.times == nil {
		f.times = map[string][]time.Time{}
	}
	for file, times := range f.times {
		for len(times) > 0 && now.Sub(times[0]) >= flapWindow {
			times = times[1:]
		}
		f.times[file] = times
		if len(times) == 0 {
			delete(f.times, file)
		}
	}
	f.times[name] = append(f.times[name], now)
	if len(f.times[name]) > maxFlaps {
		f.suspended, f.last = true, now
		return false, true
	}
	return true, false
}
