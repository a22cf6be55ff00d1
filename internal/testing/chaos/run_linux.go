package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runInside is the run itself, inside the namespaces.
func runInside(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, limit := range []string{maxWatches, maxInstances} {
		if err := os.WriteFile(limit, []byte(plenty), 0o644); err != nil {
			return err
		}
	}
	events, err := os.Create(filepath.Join(o.dir, "log", "events.log"))
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	b := newBook(os.Stdout, events, o.seed)
	fmt.Fprintf(b.out, "seed %d, from round %d, for %s in storms of %s; the logs are in %s\n", o.seed, o.from, o.long, o.storm, filepath.Join(o.dir, "log"))
	w, err := newWorld(o, b)
	if err != nil {
		return err
	}
	w.crowd = newCrowd(w)
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.rounds(ctx)
	if b.report() > 0 {
		return errors.New("promises were not kept")
	}
	return nil
}

// rounds goes from storm to storm until the time is up, and ends Orla.
func (w *world) rounds(ctx context.Context) {
	watch, over := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	for _, s := range w.crowd.sessions {
		watchers.Go(func() { s.keep(watch) })
	}
	watchers.Go(func() { w.watchProcesses(watch) })
	watchers.Go(func() { w.watchHealth(watch) })
	watchers.Go(func() { w.watchTenants(watch) })

	end := time.Now().Add(w.opts.long)
	for n := w.opts.from; n == w.opts.from || time.Now().Before(end) && ctx.Err() == nil; n++ {
		r := plan(w.opts.seed, n, w.opts.storm)
		w.book.next(n)
		w.book.event("storm of %d steps; spared: %s", len(r.steps), strings.Join(r.spared, " "))
		w.storm(ctx, r)
		if !w.calm(context.WithoutCancel(ctx), fmt.Sprintf("w%d", n)) {
			break // what follows would tell nothing new
		}
	}
	over()
	watchers.Wait()
	l := w.life()
	l.signal(syscall.SIGTERM)
	if !eventually(patience, l.isOver) || l.err != nil {
		w.book.violated("H4", "Orla ends on SIGTERM with %v", l.err)
	}
	if left := leftBehind(); !eventually(leftovers, func() bool { left = leftBehind(); return len(left) == 0 }) {
		w.book.violated("D3", "after the end there is left: %s", strings.Join(left, "; "))
	}
}

// storm does what the plan says while clients call.
func (w *world) storm(ctx context.Context, r round) {
	ctx, cancel := context.WithTimeout(ctx, w.opts.storm)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		w.crowd.storm(ctx, r, func(tool string) bool { return slices.Contains(r.spared, tool) })
	})
	began := time.Now()
	for _, s := range r.steps {
		wait(ctx, s.at-time.Since(began))
		if ctx.Err() != nil {
			return
		}
		all.Go(func() { w.harm(ctx, s) })
	}
	<-ctx.Done()
}

// harm does one step. What is done to all is done once at a time.
func (w *world) harm(ctx context.Context, s step) {
	if strings.HasPrefix(s.harm, byTenant) && !w.opts.hostile {
		return
	}
	h := harmOf(s.harm)
	if h.to == global {
		if !w.alone[h.name].TryLock() {
			return
		}
		defer w.alone[h.name].Unlock()
	}
	w.book.count(w.book.harms, s.harm, 1)
	w.book.event("%s %s for %s, size %d", s.harm, s.tool, s.long.Round(time.Millisecond), s.size)
	h.do(ctx, w, s)
	w.book.event("%s %s is over", s.harm, s.tool)
}

// watchProcesses looks for zombies that nobody reaps.
func (w *world) watchProcesses(ctx context.Context) {
	since := map[int]time.Time{} // when each zombie was first seen
	for ctx.Err() == nil {
		wait(ctx, 250*time.Millisecond)
		dead := map[int]bool{}
		orla := w.life().pid()
		for _, p := range census() {
			if !p.dead || p.parent != orla {
				continue
			}
			dead[p.pid] = true
			if _, seen := since[p.pid]; !seen {
				since[p.pid] = time.Now()
			}
			// A frozen Orla reaps nothing, nor does one that cannot open a file.
			if age := time.Since(since[p.pid]); age > 6*time.Second && !w.book.excusesAll() {
				w.book.violated("zombie", "%d has been one for %s", p.pid, age)
				since[p.pid] = time.Now()
			}
		}
		for pid := range since {
			if !dead[pid] {
				delete(since, pid)
			}
		}
		w.book.count(w.book.checks, "census", 1)
	}
}

// watchHealth asks whether Orla is alive: it is, unless it is being ended.
func (w *world) watchHealth(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, 300*time.Millisecond)
		l := w.life()
		own, cancel := context.WithTimeout(ctx, 20*time.Second)
		code, _, err := w.get(own, l, "/healthz")
		cancel()
		if (err != nil || code != 200) && ctx.Err() == nil && !w.book.excusesAll() && !l.isOver() {
			w.book.violated("health", "/healthz: HTTP %d, %v", code, err)
		}
		w.book.count(w.book.checks, "healthz", 1)
	}
}
