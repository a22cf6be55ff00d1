// Package sources watches where the tools of a configuration come from.
package sources

import (
	"context"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/file/watch"
)

// Folders watch the folders of tools, which may be others after a reload.
type Folders struct {
	hub     *watch.Hub
	log     *slog.Logger
	changed chan watch.Change
	next    chan []*watch.Watcher // holds the newest set that Run has not taken up yet
	roots   []string              // the folders and locks that are watched
}

// New returns Folders that watch nothing yet.
func New(hub *watch.Hub, log *slog.Logger) *Folders {
	return &Folders{hub: hub, log: log, changed: make(chan watch.Change), next: make(chan []*watch.Watcher, 1)}
}

// Changed returns what gets each change.
func (f *Folders) Changed() <-chan watch.Change { return f.changed }

// Point watches the folders of cfg from now on, unless ctx ends first. It must not be called from two goroutines at once.
func (f *Folders) Point(ctx context.Context, cfg *config.Loaded, home string) {
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
	if slices.Equal(all, f.roots) {
		return
	}
	first := f.roots == nil // nothing is served yet
	f.roots = all
	var set []*watch.Watcher
	add := func(root string, opts watch.Options) {
		opts.Hub, opts.Log = f.hub, f.log
		one := watch.Unread(root, opts)
		if first {
			one.LookFirst(ctx)
		} else {
			one.Look(ctx)
		}
		set = append(set, one)
	}
	for _, root := range roots {
		add(root, watch.Options{Except: []string{".orla"}, Ignore: ignored}) // .orla is where packages are brought before they are installed
	}
	for _, lock := range locks { // which version serves, and what it may do
		add(filepath.Dir(lock), watch.Options{Paths: []string{filepath.Base(lock)}, Content: true})
	}
	select {
	case <-f.next: // the set before this one was never taken up
	default:
	}
	f.next <- set
}

// ignored is watch.Ignored, but for the Python of a virtual environment (SPEC R2): when it is made, a tool that was refused
// without it can be served. Nothing else in the environment counts.
func ignored(rel string, isDir bool) bool {
	isVenv := func(rel string) bool { return path.Base(rel) == ".venv" || path.Base(rel) == "venv" }
	dir, base := path.Split(rel)
	dir = path.Clean(dir)
	switch {
	case isDir && isVenv(rel):
		return false
	case isVenv(dir):
		return !isDir || base != "bin"
	case path.Base(dir) == "bin" && isVenv(path.Dir(dir)):
		return isDir || !strings.HasPrefix(base, "python")
	}
	return watch.Ignored(rel, isDir)
}

// Run serves the newest set of watchers until ctx ends.
func (f *Folders) Run(ctx context.Context) {
	stop := func() {}
	defer func() { stop() }()
	for {
		select {
		case set := <-f.next:
			stop()
			stop = f.serve(ctx, set)
		case <-ctx.Done():
			return
		}
	}
}

// serve starts a set of watchers. The function that it returns ends them.
func (f *Folders) serve(ctx context.Context, set []*watch.Watcher) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	for _, one := range set {
		serving.Go(func() {
			defer recovered.To(f.log, "watch a folder", nil)
			_ = one.Serve(ctx) // it ends by ctx alone
		})
		serving.Go(func() { f.forward(ctx, one) })
	}
	return func() {
		cancel()
		serving.Wait()
	}
}

func (f *Folders) forward(ctx context.Context, from *watch.Watcher) {
	for {
		select {
		case change := <-from.Changed():
			select {
			case f.changed <- change:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
