package watch_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/file/watch"
)

// scenario is something that happens below a root, and what it comes to.
type scenario struct {
	name   string
	opts   watch.Options
	before func(t *testing.T, root string) // what is there at first
	act    func(t *testing.T, root string) // in one burst
	want   string                          // what the one Change names, relative to the root; "" if there is none, "*" if no order is known
	polled string                          // what it names when polled, which knows no order of events; want if empty
	probe  string                          // a file that counts, and comes last in order; "zz-probe" if empty
}

// run plays scenarios, all at once with events on one Hub, and one after the
// other with polling.
func run(t *testing.T, scenarios []scenario) {
	hub := watch.NewHub()
	var playing sync.WaitGroup
	for _, s := range scenarios {
		s.opts.Hub = hub
		playing.Go(func() { t.Run(s.name+"/events", s.play) })
	}
	playing.Wait()
	for _, s := range scenarios {
		s.opts.Poll = true
		t.Run(s.name+"/polling", func(t *testing.T) { synctest.Test(t, s.play) })
	}
}

func (s scenario) play(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	mkdir(t, root)
	if s.before != nil {
		s.before(t, root)
	}
	if s.probe == "" {
		s.probe = "zz-probe"
	}
	opts := s.opts
	// Acts take their time under load.
	opts.Debounce, opts.MaxWait = max(opts.Debounce, 400*time.Millisecond), time.Minute
	w := serve(t, root, opts)

	// The first Change of the probe proves that the root is watched, the next
	// ones that what came before them is over.
	probe := filepath.Join(root, filepath.FromSlash(s.probe))
	put(t, probe, "one")
	wantPath(t, next(t, w), probe)
	began := time.Now()
	s.act(t, root)
	// On a machine that stood still meanwhile it may be several bursts.
	paused := time.Since(began) > opts.Debounce
	want := s.want
	if opts.Poll && s.polled != "" {
		want = s.polled
	}
	switch want {
	case "":
	case "*":
		next(t, w)
	default:
		wantPath(t, next(t, w), filepath.Join(root, filepath.FromSlash(want)))
	}
	mkdir(t, filepath.Dir(probe))
	put(t, probe, "one, two")
	last := next(t, w)
	for i := 0; paused && last.Path != probe; i++ { // what was not fetched in time has taken it in
		put(t, probe, strings.Repeat("and again ", i+1))
		last = next(t, w)
	}
	wantPath(t, last, probe)
}

// files makes files with their own names as content.
func files(names ...string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		for _, name := range names {
			save(name, name)(t, root)
		}
	}
}

// save writes a file in place.
func save(name, content string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		mkdir(t, filepath.Dir(path))
		write(t, path, content)
	}
}

// swap writes a file beside it and renames it into place.
func swap(name, content string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		write(t, path+".new", content)
		rename(t, path+".new", path)
	}
}

func remove(name string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		must(t, os.RemoveAll(filepath.Join(root, filepath.FromSlash(name))))
	}
}

func move(from, to string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		rename(t, filepath.Join(root, from), filepath.Join(root, to))
	}
}

func touch(name string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		now := time.Unix(1_900_000_000, 0)
		must(t, os.Chtimes(filepath.Join(root, name), now, now))
	}
}

func chmod(name string, mode os.FileMode) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		must(t, os.Chmod(filepath.Join(root, name), mode))
	}
}

func link(to, name string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		must(t, os.Symlink(to, filepath.Join(root, name)))
	}
}

func all(acts ...func(t *testing.T, root string)) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		for _, act := range acts {
			act(t, root)
		}
	}
}
