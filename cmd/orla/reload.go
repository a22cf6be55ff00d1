package main

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/watch"
	"github.com/orla-project/orla/manifest"
)

// String names the server's own service, the reloader, in logs.
func (s *server) String() string { return "reloader" }

// Serve reloads whenever it is asked to: by SIGHUP the configuration and the
// folders, by a change in the folders these alone (SPEC H2, H3).
func (s *server) Serve(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { s.watchers.run(ctx) })
	for {
		select {
		case <-s.hup:
			s.reload(ctx)
		case change := <-s.watchers.changed:
			if cfg := s.current(); cfg.AutoReload {
				s.apply(cfg, change.Path)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// current is the configuration in force.
func (s *server) current() *loaded {
	s.cfgMu.Lock()
	defer s.cfgMu.Unlock()
	return s.cfg
}

func (s *server) adopt(cfg *loaded) {
	s.cfgMu.Lock()
	defer s.cfgMu.Unlock()
	s.cfg = cfg
}

// reload reads the configuration anew and applies what differs. One that does
// not hold changes nothing.
func (s *server) reload(ctx context.Context) {
	cfg, err := s.from.load()
	if err != nil {
		s.log.Error("reload: the configuration has faults; the old one stays", "err", err)
		return
	}
	logTo, err := openLog(cfg.LogFile)
	if err == nil {
		if err = s.move(ctx, cfg); err != nil && logTo != nil {
			_ = logTo.Close() // nothing was written to it
		}
	}
	if err != nil {
		s.log.Error("reload: the old configuration stays", "err", err)
		return
	}
	s.log.configure(&cfg.Config, logTo)
	old := s.current()
	if cfg.Stdio != old.Stdio {
		s.log.Warn("reload: stdio takes effect at the next start")
	}
	if cfg.MaxInline != old.MaxInline {
		s.bridge.SetMaxInline(int64(cfg.MaxInline))
	}
	s.bound(cfg)
	s.watchers.point(cfg, s.from.home)
	s.apply(cfg, "SIGHUP")
}

// move makes the HTTP front what cfg says. If that does not work, it stays as
// it is.
func (s *server) move(ctx context.Context, cfg *loaded) error {
	if s.http == nil || cfg.Stdio {
		return nil
	}
	settings, err := httpSettings(cfg)
	if err != nil {
		return err
	}
	if err := s.web.listen(ctx, cfg.address()); err != nil {
		return err
	}
	s.http.Configure(settings)
	if cfg.address() != s.current().address() {
		s.log.Info("listening elsewhere", "url", s.web.url())
	}
	return nil
}

// apply finds the tools and serves them. What is wrong with one of them is
// logged when it is new, so that a save elsewhere does not say it again.
func (s *server) apply(cfg *loaded, reason string) {
	began := time.Now()
	s.adopt(cfg)
	found := discover(cfg, s.from.home)
	diff := s.supervisor.Apply(found.Tools)
	for _, name := range slices.Sorted(maps.Keys(diff.Failed)) {
		found.Problems = append(found.Problems, manifest.Problem{Tool: name, Severity: manifest.Fault, Err: diff.Failed[name]})
	}
	s.tell(found.Problems)
	if diff.Empty() && reason != "start" && reason != "SIGHUP" {
		return
	}
	s.log.Info("reload", "reason", reason,
		"added", len(diff.Added), "removed", len(diff.Removed), "changed", len(diff.Changed), "kept", diff.Kept,
		"failed", len(diff.Failed), "names", names(diff.Added, diff.Changed, diff.Removed),
		"duration_ms", time.Since(began).Milliseconds())
}

// names lists what a reload touched, up to a number that a line has room for.
func names(lists ...[]string) []string {
	const most = 20
	all := append([]string{}, slices.Concat(lists...)...) // an empty list is [] in the log, not null
	if len(all) > most {
		all = append(all[:most:most], "…")
	}
	return all
}

// tell logs the problems that were not there the last time.
func (s *server) tell(problems []manifest.Problem) {
	told := make(map[string]bool, len(problems))
	for _, p := range problems {
		key := p.Path + "\x00" + p.Err.Error()
		told[key] = true
		if s.told[key] {
			continue
		}
		if p.Severity == manifest.Fault {
			s.log.Error("a tool is not served", "path", p.Path, "tool", p.Tool, "err", p.Err)
		} else {
			s.log.Warn("about the tools folder", "path", p.Path, "tool", p.Tool, "err", p.Err)
		}
	}
	s.told = told
}

// watchers watch the folders of tools. Which those are may change.
type watchers struct {
	log     *slog.Logger
	changed chan watch.Change
	next    chan []*watch.Watcher // holds the newest set that run has not taken up yet
	roots   []string
}

func newWatchers(log *slog.Logger) *watchers {
	return &watchers{log: log, changed: make(chan watch.Change), next: make(chan []*watch.Watcher, 1)}
}

// point makes the watched folders those of cfg. It must not be called from two
// goroutines at once.
func (w *watchers) point(cfg *loaded, home string) {
	dirs := folders(cfg, home)
	roots := []string{dirs.ToolsDir}
	if dirs.UserDir != "" {
		roots = append(roots, dirs.UserDir)
	}
	if slices.Equal(roots, w.roots) {
		return
	}
	w.roots = roots
	var set []*watch.Watcher
	for _, root := range roots {
		set = append(set, watch.New(root, watch.Options{Log: w.log}))
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
		serving.Go(func() { _ = one.Serve(ctx) }) // it ends by ctx alone
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

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
