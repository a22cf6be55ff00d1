package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/file/watch"
)

// watchers watch the folders of tools, which may change.
type watchers struct {
	hub     *watch.Hub
	log     *slog.Logger
	changed chan watch.Change
	next    chan []*watch.Watcher // holds the newest set that run has not taken up yet
	roots   []string              // the folders and locks that are watched
}

func newWatchers(hub *watch.Hub, log *slog.Logger) *watchers {
	return &watchers{hub: hub, log: log, changed: make(chan watch.Change), next: make(chan []*watch.Watcher, 1)}
}

// point watches the folders of cfg from now on, unless ctx ends first. It must not be called from two goroutines at once.
func (w *watchers) point(ctx context.Context, cfg *config.Loaded, home string) {
	dirs := discovery.Folders(cfg, home)
	roots := []string{dirs.ToolsDir}
	locks := discovery.LockFiles(cfg, home)
	switch {
	case cfg.Only != "":
		roots = []string{cfg.Only}
	case dirs.UserDir != "":
		roots = append(roots, dirs.UserDir)
	}
	all := slices.Concat(roots, locks)
	if slices.Equal(all, w.roots) {
		return
	}
	first := w.roots == nil // nothing is served yet
	w.roots = all
	var set []*watch.Watcher
	add := func(root string, opts watch.Options) {
		opts.Hub, opts.Log = w.hub, w.log
		one := watch.Unread(root, opts)
		if first {
			one.LookFirst(ctx)
		} else {
			one.Look(ctx)
		}
		set = append(set, one)
	}
	for _, root := range roots {
		add(root, watch.Options{Except: []string{".orla"}}) // where packages are brought before they are installed
	}
	for _, lock := range locks { // which version serves, and what it may do
		add(filepath.Dir(lock), watch.Options{Paths: []string{filepath.Base(lock)}, Content: true})
	}
	select {
	case <-w.next: // the set before this one was never taken up
	default:
	}
	w.next <- set
}

// run serves the newest set of watchers until ctx ends.
func (w *watchers) run(ctx context.Context) {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case set := <-w.next:
			stop()
			stop = w.serve(ctx, set)
		case <-ctx.Done():
			return
		}
	}
}

// serve starts a set of watchers. The function that it returns ends them.
func (w *watchers) serve(ctx context.Context, set []*watch.Watcher) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	for _, one := range set {
		serving.Go(func() {
			defer recovered.To(w.log, "watch a folder", nil)
			_ = one.Serve(ctx) // it ends by ctx alone
		})
		serving.Go(func() { w.forward(ctx, one) })
	}
	return func() {
		cancel()
		serving.Wait()
	}
}

func (w *watchers) forward(ctx context.Context, from *watch.Watcher) {
	for {
		select {
		case change := <-from.Changed():
			select {
			case w.changed <- change:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
