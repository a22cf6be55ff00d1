package capsule

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/recovered"
	"github.com/orla-project/orla/internal/watch"
)

const (
	// flapWindow and maxFlaps: a capsule that is reloaded more often than that
	// for one file writes that file itself (SPEC E3).
	flapWindow = time.Minute
	maxFlaps   = 10
)

// newWatcher makes the watcher of the capsule's files; nil when nothing is to
// be watched. The manifests are left out: a change of theirs is applied by
// whoever reads them (SPEC E1).
func (c *Capsule) newWatcher() *watch.Watcher {
	h := c.tool.Runtime.HotLoad
	if len(h.Watch) == 0 {
		return nil
	}
	return watch.New(c.tool.Dir, watch.Options{
		Hub:       c.opts.Hub,
		Paths:     h.Watch,
		Globs:     h.Ignore,
		Except:    []string{"tool.yaml", "orla-tool.json"},
		Gitignore: true,
		Content:   true,
		Debounce:  max(h.Debounce, 1), // 0 is the watcher's default
		Log:       c.log.With("tool", c.tool.Name),
	})
}

// newShared makes the watchers of files outside of the package.
func (c *Capsule) newShared() []*watch.Watcher {
	h := c.tool.Runtime.HotLoad
	var list []*watch.Watcher
	for _, path := range h.Outside {
		list = append(list, watch.New(path, watch.Options{
			Hub: c.opts.Hub, Globs: h.Ignore, Gitignore: true, Content: true, Debounce: max(h.Debounce, 1), Log: c.log.With("tool", c.tool.Name),
		}))
	}
	return list
}

// watchFiles runs the watchers in goroutines of helpers until ctx ends. A panic of one calls stop.
func (c *Capsule) watchFiles(ctx context.Context, helpers *sync.WaitGroup, stop func()) {
	all := c.shared
	if c.watcher != nil {
		all = append(slices.Clip(all), c.watcher)
	}
	for _, one := range all {
		helpers.Go(func() {
			defer recovered.To(c.log, "watch a capsule's files", func(any) { stop() }) // the capsule is started again
			_ = one.Serve(ctx)                                                         // it ends by ctx alone
		})
		if len(c.shared) > 0 {
			helpers.Go(func() { c.forward(ctx, one.Changed()) })
		}
	}
}

// forward makes the changes of several watchers one channel.
func (c *Capsule) forward(ctx context.Context, from <-chan watch.Change) {
	for {
		select {
		case change := <-from:
			select {
			case c.changes <- change:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// changed delivers the changes of the capsule's files; nil when nothing is watched.
func (c *Capsule) changed() <-chan watch.Change {
	switch {
	case len(c.shared) > 0:
		return c.changes
	case c.watcher == nil:
		return nil
	}
	return c.watcher.Changed()
}

// noteChange wishes for a reload, unless one file has made too many. Only
// Serve's goroutine calls it.
func (c *Capsule) noteChange(change watch.Change) {
	name := change.Path
	if rel, err := filepath.Rel(c.tool.Dir, change.Path); err == nil && filepath.IsLocal(rel) {
		name = rel
	}
	if _, err := os.Stat(c.tool.Source); errors.Is(err, fs.ErrNotExist) {
		return // the package is going, or being put in place again: then files change once more
	}
	reload, suspended := c.flaps.count(name, time.Now())
	if suspended {
		c.log.Error("one file has made the capsule reload too often; does it write the file itself? Changes count again after a quiet minute; orla restart takes what is there now. To leave the file out, list it under runtime.hot_load.ignore",
			"tool", c.tool.Name, "file", name, "reloads", maxFlaps, "within_ms", flapWindow.Milliseconds())
	}
	if reload {
		c.trigger(trigger{reason: name + " changed", at: change.At})
	}
}

// flaps finds out that one file makes a capsule reload again and again.
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
		if f.times[file] = times; len(times) == 0 {
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
