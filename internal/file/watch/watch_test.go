package watch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/needs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// quick is for tests in which it does not matter how events are grouped.
const quick = 5 * time.Millisecond

// start runs w until the function it returns is called.
func start(t *testing.T, w *watch.Watcher) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Serve(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Serve returned %v, want context.Canceled", err)
		}
	}
}

// serve runs a Watcher of root until the test ends.
func serve(t *testing.T, root string, opts watch.Options) *watch.Watcher {
	t.Helper()
	w := watch.New(root, opts)
	t.Cleanup(start(t, w))
	return w
}

// next waits for the next Change.
func next(t *testing.T, w *watch.Watcher) watch.Change {
	t.Helper()
	select {
	case c := <-w.Changed():
		return c
	case <-time.After(time.Minute):
		t.Fatal("no Change within a minute")
		return watch.Change{}
	}
}

func wantPath(t *testing.T, c watch.Change, want string) {
	t.Helper()
	if c.Path != want {
		t.Fatalf("Change names %q, want %q", c.Path, want)
	}
}

// put makes a file complete by a rename from elsewhere, which is a single event.
func put(t *testing.T, path, content string) string {
	t.Helper()
	tmp := filepath.Join(t.TempDir(), "put")
	write(t, tmp, content)
	rename(t, tmp, path)
	return path
}

// live proves that dir is watched: a file made there is named by a Change.
// Changes that were still on their way are passed over. Afterwards nothing is.
func live(t *testing.T, w *watch.Watcher, dir string) {
	t.Helper()
	for i := range 20 {
		probe := put(t, filepath.Join(dir, fmt.Sprintf("probe-%d", i)), "")
		if c := next(t, w); c.Path == probe && i > 0 {
			return
		}
	}
	t.Fatalf("no Change names a file in %q", dir)
}

// silent proves that what happened before it was not a change.
func silent(t *testing.T, w *watch.Watcher, dir string) {
	t.Helper()
	later := put(t, filepath.Join(dir, "later-"+filepath.Base(t.TempDir())), "")
	wantPath(t, next(t, w), later)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.Rename(from, to))
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o700))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewFileIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	before := time.Now()
	file := put(t, filepath.Join(root, "greet.sh"), "#!/bin/sh\n")
	c := next(t, w)
	wantPath(t, c, file)
	if c.At.Before(before) || c.At.After(time.Now()) {
		t.Errorf("At is %v, want a time after %v", c.At, before)
	}
}

func TestRemovedFileIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := put(t, filepath.Join(root, "greet.sh"), "")
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	must(t, os.Remove(file))
	wantPath(t, next(t, w), file)
	silent(t, w, root)
}

func TestChangeBetweenNewAndServeIsSeen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := put(t, filepath.Join(root, "greet.sh"), "one")
	w := watch.New(root, watch.Options{Debounce: quick})
	put(t, file, "one, two")
	stop := start(t, w)
	wantPath(t, next(t, w), file)
	stop()

	// And so is one between two runs.
	put(t, file, "one, two, three")
	stop = start(t, w)
	wantPath(t, next(t, w), file)
	stop()
}

func TestUnchangedTreeIsSilentAtStart(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, filepath.Join(root, "greet.sh"), "")
	w := serve(t, root, watch.Options{Debounce: quick})
	later := put(t, filepath.Join(root, "later"), "")
	wantPath(t, next(t, w), later)
}

func TestAtomicSaveNamesTheTarget(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	target := put(t, filepath.Join(root, "tool.py"), "old")
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	tmp := filepath.Join(root, "tool.py.tmp")
	write(t, tmp, "new")
	rename(t, tmp, target)
	wantPath(t, next(t, w), target)
	silent(t, w, root)
}

func TestSaveInPlaceAfterAtomicSaveIsSeen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	target := put(t, filepath.Join(root, "tool.py"), "old")
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	put(t, target, "new")
	wantPath(t, next(t, w), target)
	write(t, target, "newer")
	wantPath(t, next(t, w), target)
}

func TestNestedFoldersMadeAtOnceAreWatched(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	deep := filepath.Join(root, "a", "b", "c")
	mkdir(t, deep)
	write(t, filepath.Join(deep, "tool.py"), "")
	wantPath(t, next(t, w), filepath.Join(root, "a"))
	live(t, w, deep)
	live(t, w, filepath.Dir(deep))
}

func TestRenamedFolderIsWatchedUnderItsNewName(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mkdir(t, filepath.Join(root, "old", "inner"))
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	rename(t, filepath.Join(root, "old"), filepath.Join(root, "new"))
	next(t, w)
	live(t, w, filepath.Join(root, "new"))
	live(t, w, filepath.Join(root, "new", "inner"))
}

func TestFolderMovedOutIsNoLongerWatched(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	mkdir(t, filepath.Join(root, "pkg", "inner"))
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	rename(t, filepath.Join(root, "pkg"), filepath.Join(outside, "pkg"))
	wantPath(t, next(t, w), filepath.Join(root, "pkg"))
	live(t, w, root)
	write(t, filepath.Join(outside, "pkg", "inner", "x"), "")
	silent(t, w, root)
}

func TestRemovedAndRemadeFolderIsWatched(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	pkg := filepath.Join(root, "pkg")
	mkdir(t, pkg)
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, pkg)
	for range 5 {
		must(t, os.RemoveAll(pkg))
		mkdir(t, pkg)
		live(t, w, pkg)
	}
}

// A folder that is renamed and then removed at once makes fsnotify report an
// error under its own lock, and a loop that reads both channels would hang.
func TestFoldersThatMoveAndVanishDoNotBlock(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	for i := range 200 {
		from, to := filepath.Join(root, "from"), filepath.Join(root, "to")
		mkdir(t, filepath.Join(root, fmt.Sprint("kept-", i)))
		mkdir(t, from)
		rename(t, from, to)
		must(t, os.Remove(to))
	}
	live(t, w, root)
	live(t, w, filepath.Join(root, "kept-199"))
}

func TestRootRemovedAndRemade(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "tools")
	mkdir(t, root)
	put(t, filepath.Join(root, "greet.sh"), "")
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	must(t, os.RemoveAll(root))
	next(t, w)
	mkdir(t, filepath.Join(root, "inner"))
	live(t, w, root)
	live(t, w, filepath.Join(root, "inner"))

	// And at once, with another folder in its place.
	other := filepath.Join(t.TempDir(), "other")
	mkdir(t, filepath.Join(other, "inner"))
	rename(t, root, other+".old")
	rename(t, other, root)
	live(t, w, root)
	live(t, w, filepath.Join(root, "inner"))
}

func TestRootAppearingLater(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := filepath.Join(base, "project", "sub", "tools")
	w := serve(t, root, watch.Options{Debounce: quick})
	put(t, filepath.Join(base, "unrelated"), "")
	mkdir(t, root)
	c := next(t, w)
	if !strings.HasPrefix(c.Path, root) {
		t.Fatalf("Change names %q, want something in %q", c.Path, root)
	}
	live(t, w, root)

	// And again after everything above it has gone.
	must(t, os.RemoveAll(filepath.Join(base, "project")))
	next(t, w)
	mkdir(t, root)
	live(t, w, root)
}

func TestNeighboursOfTheRootAreSilent(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := filepath.Join(base, "tools")
	mkdir(t, root)
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	mkdir(t, filepath.Join(base, "tools2"))
	put(t, filepath.Join(base, "notes.txt"), "")
	must(t, os.Chmod(base, 0o711))
	silent(t, w, root)
}

func TestLinkOnTheWayToTheRootIsFollowed(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"current", "current/tools"} {
		base := t.TempDir()
		for _, release := range []string{"release-1", "release-2"} {
			mkdir(t, filepath.Join(base, release, "tools"))
		}
		point := func(release string) {
			must(t, os.Symlink(release, filepath.Join(base, "next")))
			rename(t, filepath.Join(base, "next"), filepath.Join(base, "current"))
		}
		point("release-1")
		root := filepath.Join(base, filepath.FromSlash(at))
		w := serve(t, root, watch.Options{Debounce: quick})
		live(t, w, root)
		point("release-2")
		next(t, w)
		live(t, w, root)
	}
}

func TestRootMayBeAFile(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := put(t, filepath.Join(base, "orla.yaml"), "one")
	w := serve(t, root, watch.Options{Debounce: quick})
	put(t, filepath.Join(base, "other.yaml"), "")
	for _, content := range []string{"one, two", "three"} {
		put(t, root, content)
		wantPath(t, next(t, w), root)
	}
	must(t, os.Remove(root))
	wantPath(t, next(t, w), root)
	put(t, root, "four")
	wantPath(t, next(t, w), root)
}

func TestAttributesCountWhenTheyMatter(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := put(t, filepath.Join(root, "greet.sh"), "#!/bin/sh\n")
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	yesterday := time.Now().Add(-24 * time.Hour)

	counts := map[string]func() error{
		"the executable bits set":     func() error { return os.Chmod(file, 0o700) },
		"the time of the last change": func() error { return os.Chtimes(file, time.Time{}, yesterday) },
	}
	for name, change := range counts {
		must(t, change())
		c := next(t, w)
		if c.Path != file {
			t.Errorf("%s: Change names %q, want %q", name, c.Path, file)
		}
	}
	must(t, os.Chmod(file, 0o600))
	wantPath(t, next(t, w), file) // the executable bits taken away

	noise := map[string]func() error{
		"another permission":        func() error { return os.Chmod(file, 0o640) },
		"the time of the last read": func() error { return os.Chtimes(file, yesterday, time.Time{}) },
		"the folder's own time":     func() error { return os.Chtimes(root, yesterday, yesterday) },
	}
	for name, change := range noise {
		must(t, change())
		t.Log(name)
		silent(t, w, root)
	}
}

func TestBurstIsOneChange(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for silence")
	root := t.TempDir()
	w := serve(t, root, watch.Options{Debounce: time.Second, MaxWait: time.Minute})
	live(t, w, root)
	for i := range 300 {
		dir := filepath.Join(root, fmt.Sprintf("dir-%d", i%10))
		mkdir(t, dir)
		write(t, filepath.Join(dir, fmt.Sprintf("file-%d", i)), "content")
	}
	wantPath(t, next(t, w), filepath.Join(root, "dir-0"))
	silent(t, w, root)
}

func TestSteadyStreamIsBoundedByMaxWait(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := serve(t, root, watch.Options{Debounce: time.Hour, MaxWait: 50 * time.Millisecond})
	file := put(t, filepath.Join(root, "log"), "")
	deadline := time.After(time.Minute)
	for {
		select {
		case c := <-w.Changed():
			wantPath(t, c, file)
			return
		case <-deadline:
			t.Fatal("no Change within a minute")
		default:
			write(t, file, time.Now().String())
		}
	}
}

func TestIgnoredFilesAreSilent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, root)
	for _, dir := range []string{".git", "node_modules", "__pycache__", ".venv", "venv"} {
		mkdir(t, filepath.Join(root, dir, "inner"))
		write(t, filepath.Join(root, dir, "inner", "x"), "")
	}
	for _, name := range []string{"m.pyc", ".tool.py.swp", ".tool.py.swo", "tool.py~", ".#tool.py", "4913", "#tool.py#", "x.tmp"} {
		write(t, filepath.Join(root, name), "")
		must(t, os.Remove(filepath.Join(root, name)))
		write(t, filepath.Join(root, name), "")
	}
	must(t, os.RemoveAll(filepath.Join(root, "node_modules")))
	silent(t, w, root)
}

func TestIgnoreOfTheCaller(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	mkdir(t, filepath.Join(root, "src", "gen"))
	w := serve(t, root, watch.Options{Debounce: quick, Ignore: func(path string, isDir bool) bool {
		return watch.Ignored(path, isDir) || isDir && path == "src/gen" || strings.HasSuffix(path, ".log")
	}})
	live(t, w, root)
	write(t, filepath.Join(root, "src", "gen", "x"), "")
	write(t, filepath.Join(root, "src", "out.log"), "")
	write(t, filepath.Join(root, "src", "x.tmp"), "")
	silent(t, w, filepath.Join(root, "src"))
}

func TestUnreadableFolderDoesNotKeepTheRestFromBeingWatched(t *testing.T) {
	t.Parallel()
	if !needs.Unprivileged(t) {
		return
	}
	root := t.TempDir()
	locked := filepath.Join(root, "a-locked")
	must(t, os.Mkdir(locked, 0))
	mkdir(t, filepath.Join(root, "b"))
	w := serve(t, root, watch.Options{Debounce: quick})
	live(t, w, filepath.Join(root, "b"))
	must(t, os.Chmod(locked, 0o700))
	next(t, w)
	live(t, w, locked)
}

func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := t.TempDir()
		root := filepath.Join(base, "tools")
		w := serve(t, root, watch.Options{Poll: true})

		mkdir(t, root)
		wantPath(t, next(t, w), root)
		file := put(t, filepath.Join(root, "greet.sh"), "one")
		wantPath(t, next(t, w), file)
		put(t, file, "one, two")
		wantPath(t, next(t, w), file)
		must(t, os.Chmod(file, 0o700))
		wantPath(t, next(t, w), file)
		deep := filepath.Join(root, "a", "b")
		mkdir(t, deep)
		wantPath(t, next(t, w), filepath.Join(root, "a"))
		put(t, filepath.Join(deep, "x"), "")
		wantPath(t, next(t, w), filepath.Join(deep, "x"))

		mkdir(t, filepath.Join(root, "node_modules"))
		write(t, filepath.Join(root, "x.tmp"), "")
		must(t, os.Chmod(file, 0o750)) // another permission for others, and executable for the group
		wantPath(t, next(t, w), file)
		must(t, os.Chmod(file, 0o710))
		silent(t, w, root)

		must(t, os.RemoveAll(root))
		next(t, w)
		mkdir(t, root)
		wantPath(t, next(t, w), root)
	})
}

// H3: what changed once is quiet, however many polls that takes, and not only when
// MaxWait is over.
func TestPollingFallsQuiet(t *testing.T) {
	for _, debounce := range []time.Duration{time.Second, 1500 * time.Millisecond, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			root := t.TempDir()
			w := serve(t, root, watch.Options{Poll: true, Debounce: debounce, MaxWait: time.Hour})
			file := put(t, filepath.Join(root, "greet.sh"), "one")
			wantPath(t, next(t, w), file)
			must(t, os.Remove(file))
			wantPath(t, next(t, w), file)
			must(t, os.Remove(root)) // nothing is left
			wantPath(t, next(t, w), root)
		})
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	if got, want := watch.New("/no/such/tools", watch.Options{}).String(), "watch /no/such/tools"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}
