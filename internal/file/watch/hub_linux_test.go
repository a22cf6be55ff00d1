package watch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

const soon = 5 * time.Millisecond

// L4, E3: the limit of instances per user is 128.
func TestManyWatchersShareOneInstance(t *testing.T) {
	hub := NewHub()
	var ws []*Watcher
	for range 300 {
		root := t.TempDir()
		mustDo(t, os.Mkdir(filepath.Join(root, "src"), 0o700))
		ws = append(ws, New(root, Options{Hub: hub, Debounce: soon}))
	}
	if _, n := kernelWatches(t); n != 0 {
		t.Errorf("%d instances before anybody serves, want none", n)
	}
	before := runtime.NumGoroutine()
	stop := serving(t, ws...)
	for _, w := range ws {
		probe(t, w, filepath.Join(w.root, "src"), filepath.Join(w.root, "src"))
	}
	if _, n := kernelWatches(t); n != 1 {
		t.Errorf("%d instances for %d Watchers, want 1", n, len(ws))
	}
	stop()
	if _, n := kernelWatches(t); n != 0 {
		t.Errorf("%d instances after the last Serve returned, want none", n)
	}
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })

	// And again.
	stop = serving(t, ws[0])
	probe(t, ws[0], ws[0].root, ws[0].root)
	stop()
}

// E3: whoever stops takes nothing away from the others, and leaves nothing.
func TestSharedFolderIsWatchedUntilTheLastLeaves(t *testing.T) {
	base := t.TempDir()
	pkg, link := filepath.Join(base, "pkg"), filepath.Join(t.TempDir(), "link")
	mustDo(t, os.MkdirAll(filepath.Join(pkg, "src"), 0o700), os.Symlink(pkg, link))
	hub := NewHub()
	all := New(base, Options{Hub: hub, Debounce: soon})
	one := New(pkg, Options{Hub: hub, Debounce: soon})
	linked := New(link, Options{Hub: hub, Debounce: soon})
	stopAll, stopOne, stopLinked := serving(t, all), serving(t, one), serving(t, linked)
	defer stopLinked()

	src := filepath.Join(pkg, "src")
	probe(t, all, src, src)
	probe(t, one, src, src)
	probe(t, linked, src, filepath.Join(link, "src"))
	stopAll()
	probe(t, one, src, src)
	stopOne()
	probe(t, linked, src, filepath.Join(link, "src"))
	// src, pkg, base, and the folder of the link.
	eventually(t, "only the last one's watches are left", func() bool { n, _ := kernelWatches(t); return n == 4 })
}

// E3: who came to a folder by its own name does not lose it when a link to it,
// by which it was watched first, leads elsewhere.
func TestLinkToSharedFolderLeadsElsewhere(t *testing.T) {
	base := t.TempDir()
	one, two, link := filepath.Join(base, "one"), filepath.Join(base, "two"), filepath.Join(base, "link")
	mustDo(t, os.MkdirAll(filepath.Join(one, "pkg"), 0o700), os.MkdirAll(filepath.Join(two, "pkg"), 0o700), os.Symlink(one, link))
	hub := NewHub()
	linked := New(filepath.Join(link, "pkg"), Options{Hub: hub, Debounce: soon})
	plain := New(filepath.Join(one, "pkg"), Options{Hub: hub, Debounce: soon, Content: true})
	stop := serving(t, linked)
	defer stop()
	probe(t, linked, filepath.Join(one, "pkg"), linked.root)
	stopPlain := serving(t, plain)
	defer stopPlain()
	probe(t, plain, plain.root, plain.root)

	mustDo(t, os.Symlink(two, link+".new"), os.Rename(link+".new", link))
	for range 10 { // bursts of plain end as well meanwhile
		probe(t, linked, filepath.Join(two, "pkg"), linked.root)
	}
	// For plain nothing has changed but its probe, which may be named twice.
	file := filepath.Join(plain.root, "main.py")
	mustDo(t, os.WriteFile(file, nil, 0o600))
	for c := nextChange(t, plain); c.Path != file; c = nextChange(t, plain) {
		if c.Path == plain.root {
			t.Errorf("Change names %q, which is what it was", c.Path)
		}
	}
}

// E3: where a folder came from does not matter to those who see it now.
func TestFolderThatWasNotLetGoYet(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	mustDo(t, os.MkdirAll(filepath.Join(a, "dir", "inner"), 0o700))
	hub := NewHub()
	slow := New(a, Options{Hub: hub, Debounce: time.Hour, MaxWait: time.Hour})
	stop := serving(t, slow)
	defer stop()
	// What slow watches, and what is above it.
	eventually(t, "all is watched", func() bool { n, _ := kernelWatches(t); return n == 4 })
	quick := New(b, Options{Hub: hub, Debounce: soon})
	stopQuick := serving(t, quick)
	defer stopQuick()
	probe(t, quick, b, b)
	mustDo(t, os.Rename(filepath.Join(a, "dir"), filepath.Join(b, "dir")))
	probe(t, quick, filepath.Join(b, "dir", "inner"), filepath.Join(b, "dir", "inner"))
}

// E3: what left is not watched where it went.
func TestFolderThatLeavesIsLetGo(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	mustDo(t, os.MkdirAll(filepath.Join(root, "dir", "inner"), 0o700))
	w := New(root, Options{Debounce: soon, Content: true})
	stop := serving(t, w)
	defer stop()
	probe(t, w, filepath.Join(root, "dir", "inner"), filepath.Join(root, "dir", "inner"))
	mustDo(t, os.Rename(filepath.Join(root, "dir"), filepath.Join(elsewhere, "dir")))
	eventually(t, "the root and what is above it are left", func() bool { n, _ := kernelWatches(t); return n == 2 })
}

// E3: a folder that moved is known by its new name to those who see it, and to
// nobody else.
func TestFolderThatMovesBetweenWatchers(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	hub := NewHub()
	wa := New(a, Options{Hub: hub, Debounce: soon, Content: true})
	wb := New(b, Options{Hub: hub, Debounce: soon, Content: true})
	stop := serving(t, wa, wb)
	defer stop()
	probe(t, wa, a, a)
	probe(t, wb, b, b)

	inner := func(root string) string { return filepath.Join(root, "dir", "inner") }
	mustDo(t, os.MkdirAll(inner(a), 0o700))
	probe(t, wa, inner(a), inner(a))
	for range 10 {
		mustDo(t, os.Rename(filepath.Join(a, "dir"), filepath.Join(b, "dir")), os.MkdirAll(inner(a), 0o700))
		probe(t, wb, inner(b), inner(b))
		probe(t, wa, inner(a), inner(a))
		mustDo(t, os.RemoveAll(filepath.Join(b, "dir")))
	}
	mustDo(t, os.RemoveAll(filepath.Join(a, "dir")))
	// Two roots, and what is above both.
	eventually(t, "nothing is watched in vain", func() bool { n, _ := kernelWatches(t); return n == 3 })
}

// E3: nobody watches where nothing can count.
func TestOnlyWhatCanCountIsWatched(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"src/sub", "src/gen/x", "src/node_modules/x", "conf/deep", "data/x/y", "other/x", "out/x"} {
		mustDo(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	mustDo(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte("gen/\nout\n"), 0o600))
	tests := []struct {
		name string
		opts Options
		want int // with the one above the root
	}{
		{"all", Options{}, 15},
		{"a folder and a file in another", Options{Paths: []string{"src", "conf/app.yaml"}}, 7},
		{"a file at the root", Options{Paths: []string{"main.py"}}, 2},
		{"globs", Options{Globs: []string{"data/**", "other/", "out"}}, 8},
		{"gitignore", Options{Gitignore: true}, 11},
	}
	for _, tt := range tests {
		tt.opts.Debounce = soon
		w := New(root, tt.opts)
		stop := serving(t, w)
		for range 2 { // the first may be found before all is watched
			for _, file := range []string{"main.py", "src/main.py"} {
				mustDo(t, os.WriteFile(filepath.Join(root, file), []byte(tt.name), 0o600))
			}
			nextChange(t, w)
		}
		if have, _ := kernelWatches(t); have != tt.want {
			t.Errorf("%s: %d folders are watched, want %d", tt.name, have, tt.want)
		}
		stop()
	}
}

// E3: whatever happens, in the end every folder is watched, and nothing else is.
func TestRandomWalk(t *testing.T) {
	for _, content := range []bool{false, true} {
		walk(t, rand.New(rand.NewPCG(1, 0)), content)
	}
}

func walk(t *testing.T, r *rand.Rand, content bool) {
	t.Helper()
	base := t.TempDir()
	root, link := filepath.Join(base, "root"), filepath.Join(base, "link")
	mustDo(t, os.MkdirAll(filepath.Join(root, "a"), 0o700), os.Symlink("root", link))
	hub := NewHub()
	opts := Options{Hub: hub, Debounce: soon, Content: content, Gitignore: true}
	ws := []*Watcher{New(root, opts), New(filepath.Join(root, "a"), opts), New(link, opts)}
	stop := serving(t, ws...)
	defer stop()

	name := func() string {
		p := root
		for range r.IntN(3) + 1 {
			p = filepath.Join(p, string(rune('a'+r.IntN(3))))
		}
		return p
	}
	for range 2000 {
		// Each may fail, as what it needs may not be there.
		switch p := name(); r.IntN(7) {
		case 0, 1:
			_ = os.Mkdir(p, 0o700)
		case 2:
			_ = os.WriteFile(p, []byte{byte(r.Int())}, 0o600)
		case 3, 4:
			_ = os.Rename(p, name())
		case 5:
			_ = os.RemoveAll(p)
		case 6:
			_ = os.Chmod(p, 0o700|os.FileMode(r.IntN(2)*0o50))
		}
	}
	dirs := 0
	_ = os.RemoveAll(filepath.Join(root, "a"))
	mustDo(t, os.Mkdir(filepath.Join(root, "a"), 0o700))
	mustDo(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		dirs++
		rel, err := filepath.Rel(root, p)
		mustDo(t, err)
		probe(t, ws[0], p, p)
		probe(t, ws[2], p, filepath.Join(link, rel))
		return nil
	}))
	probe(t, ws[1], filepath.Join(root, "a"), filepath.Join(root, "a"))
	eventually(t, "what is there is watched, and base", func() bool { n, _ := kernelWatches(t); return n == dirs+1 })
}

// Two folders that are watched, of which one takes the other's place before the
// library knows, leave it with half a watch, over which it panics. That must
// not end Orla.
func TestUnwatchWhatIsHalfForgotten(t *testing.T) {
	lib, err := fsnotify.NewWatcher()
	mustDo(t, err)
	defer func() { mustDo(t, lib.Close()) }()
	base := t.TempDir()
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	mustDo(t, os.Mkdir(one, 0o700), os.Mkdir(two, 0o700), lib.Add(one), lib.Add(two))
	// The library holds this until somebody takes it, and reads on after that.
	mustDo(t, os.WriteFile(filepath.Join(one, "file"), nil, 0o600))
	mustDo(t, os.Remove(two), os.Rename(one, two), lib.Add(two))
	for _, path := range []string{two, one} {
		unwatch(lib, path)
	}
	if left := lib.WatchList(); len(left) > 0 {
		t.Errorf("watched is %q", left)
	}
}

// E1: whoever watches a folder inside one that is removed and made anew, by a checkout
// or a copy, is told of it, also when another Watcher has found the new one already.
func TestAFolderIsMadeAnewAtOnce(t *testing.T) {
	base := t.TempDir()
	tools := filepath.Join(base, "tools")
	hub := NewHub()
	var ws []*Watcher
	for i := range 40 {
		root := filepath.Join(tools, fmt.Sprint("tool-", i))
		mustDo(t, os.MkdirAll(root, 0o700))
		ws = append(ws, New(root, Options{Hub: hub, Debounce: soon, Content: true}))
	}
	stop := serving(t, ws...)
	defer stop()
	for _, w := range ws {
		probe(t, w, w.root, w.root)
	}
	for range 5 {
		mustDo(t, os.RemoveAll(tools))
		for _, w := range ws {
			mustDo(t, os.MkdirAll(w.root, 0o700))
		}
		for _, w := range ws {
			probe(t, w, w.root, w.root)
		}
	}
}

// The number of a folder that is gone is soon another one's.
func TestAnotherFolderHasAnotherIdentity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools")
	mustDo(t, os.Mkdir(dir, 0o700))
	first, err := identify(dir)
	mustDo(t, err)
	if again, err := identify(dir); err != nil || again != first {
		t.Fatalf("it is %v, and then %v (%v)", first, again, err)
	}
	eventually(t, "time goes on for the file system", func() bool {
		other := filepath.Join(t.TempDir(), "other")
		mustDo(t, os.Mkdir(other, 0o700))
		now, err := identify(other)
		mustDo(t, err)
		return first.born == 0 || now.born > first.born
	})
	for range 10 {
		mustDo(t, os.Remove(dir), os.Mkdir(dir, 0o700))
		if now, err := identify(dir); err != nil || now == first {
			t.Errorf("the new folder is taken for the old one, %v (%v)", now, err)
		}
	}
}

// What is put together with a note that comes first is not lost.
func TestLookAgainIsKept(t *testing.T) {
	box := newInbox()
	box.put("a", fsnotify.Chmod)
	box.put("a", lookAgain)
	notes, _, _ := box.take()
	if len(notes) != 1 || notes[0].op&lookAgain == 0 || notes[0].op&fsnotify.Chmod == 0 {
		t.Errorf("the notes are %v, want one that has both", notes)
	}
}

// E3: a folder on the way that is away only for the moment in which it is to be watched is
// watched all the same.
func TestStepIsBackBeforeItIsLookedAtAgain(t *testing.T) {
	tools := filepath.Join(t.TempDir(), "tools")
	mustDo(t, os.Mkdir(tools, 0o700))
	w := New(filepath.Join(tools, "plain"), Options{Debounce: soon})
	mustDo(t, w.hub.join(w.box))
	w.polling, w.subs = false, map[string][]*sub{}
	defer w.end()
	looks := 0
	mustDo(t, w.follow(rootTrail, w.root, func() []step {
		looks++
		if looks == 2 {
			mustDo(t, os.Mkdir(tools, 0o700))
		}
		steps := trail("/", w.root)
		if looks == 1 {
			mustDo(t, os.Remove(tools))
		}
		return steps
	}))
	mustDo(t, os.Mkdir(w.root, 0o700))
	eventually(t, "the watcher is told that its root is there", func() bool {
		notes, _, _ := w.box.take()
		return len(notes) > 0 && notes[0].path == w.root
	})
}
