package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/file/watch"
)

// logged is a slog.Handler that hands over each record of a level.
type logged struct {
	slog.Handler
	level   slog.Level
	records chan slog.Record
}

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level == l.level }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.records <- r
	return nil
}

// Not parallel: the process can open no file meanwhile.
func TestPastTheKernelsLimitsItPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		file := put(t, filepath.Join(root, "greet.sh"), "one")
		log := logged{level: slog.LevelError, records: make(chan slog.Record, 10)}

		var was syscall.Rlimit
		must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
		none := was
		none.Cur = 0
		restore := func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)) }
		defer restore()

		w := watch.New(root, watch.Options{Log: slog.New(log)})
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
		stop := start(t, w)
		defer stop()
		r := <-log.records
		synctest.Wait()
		restore()

		hint := hintOf(r)
		if !strings.Contains(hint, "sysctl -w fs.inotify.max_user_instances") {
			t.Errorf("hint is %q, want the sysctl to raise", hint)
		}

		// That the tree could not be read meanwhile is not a change.
		put(t, file, "one, two")
		wantPath(t, next(t, w), file)
		put(t, filepath.Join(root, "other.sh"), "")
		wantPath(t, next(t, w), filepath.Join(root, "other.sh"))
		if n := len(log.records); n != 0 {
			t.Errorf("%d more errors were logged, want one line only", n)
		}
	})
}

// narrowed runs the test that it is called from once more, in a user namespace
// of its own, whose limits the test may set. It reports whether it is there.
func narrowed(t *testing.T) bool {
	t.Helper()
	const inside = "WATCH_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	exit := new(exec.ExitError)
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Skipf("no user namespaces here: %v", err)
	case err != nil:
		t.Fatalf("inside: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("inside: %s", out)
	}
	return false
}

func limit(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/user/"+name, []byte(value), 0); err != nil {
		t.Skip(err)
	}
}

func hintOf(r slog.Record) (hint string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "hint" {
			hint = a.Value.String()
		}
		return true
	})
	return hint
}

// E3: past the limit of watches those poll who are past it, and nobody else.
func TestOutOfWatches(t *testing.T) {
	if !narrowed(t) {
		return
	}
	limit(t, "max_inotify_watches", "6")
	small, large := t.TempDir(), t.TempDir()
	for i := range 10 {
		mkdir(t, filepath.Join(large, fmt.Sprint(i)))
	}
	hub := watch.NewHub()
	broken := logged{level: slog.LevelError, records: make(chan slog.Record, 10)}
	warned := logged{level: slog.LevelWarn, records: make(chan slog.Record, 10)}
	w := serve(t, small, watch.Options{Hub: hub, Debounce: quick, Log: slog.New(broken)})
	live(t, w, small)

	l := serve(t, large, watch.Options{Hub: hub, Debounce: quick, Log: slog.New(broken)})
	if hint := hintOf(<-broken.records); !strings.Contains(hint, "sysctl -w fs.inotify.max_user_watches") {
		t.Errorf("hint is %q, want the sysctl to raise", hint)
	}
	deep := filepath.Join(large, "9", "x")
	put(t, deep, "")
	wantPath(t, next(t, l), deep)
	silent(t, w, small)

	// The next one is not told what the log says already.
	other := serve(t, large, watch.Options{Hub: hub, Debounce: quick, Log: slog.New(warned)})
	if hint := hintOf(<-warned.records); hint != "" {
		t.Errorf("the second warning has the hint %q again", hint)
	}
	put(t, deep, "one")
	wantPath(t, next(t, other), deep)
	if n := len(broken.records); n != 0 {
		t.Errorf("%d more errors were logged, want one only", n)
	}

	// Who needs few still gets them.
	few := serve(t, filepath.Join(large, "0"), watch.Options{Hub: hub, Debounce: quick, Log: slog.New(broken)})
	live(t, few, filepath.Join(large, "0"))
	if n := len(broken.records); n != 0 {
		t.Errorf("%d more errors were logged, want one only", n)
	}
}

// E3: the same for instances, of which a Hub needs one.
func TestOutOfInstances(t *testing.T) {
	if !narrowed(t) {
		return
	}
	limit(t, "max_inotify_instances", "0")
	root := t.TempDir()
	hub := watch.NewHub()
	log := logged{level: slog.LevelError, records: make(chan slog.Record, 10)}
	opts := watch.Options{Hub: hub, Debounce: quick, Log: slog.New(log)}
	one := watch.New(root, opts)
	stop := start(t, one)
	if hint := hintOf(<-log.records); !strings.Contains(hint, "sysctl -w fs.inotify.max_user_instances") {
		t.Errorf("hint is %q, want the sysctl to raise", hint)
	}
	two := serve(t, root, opts)
	file := put(t, filepath.Join(root, "x"), "")
	wantPath(t, next(t, one), file)
	wantPath(t, next(t, two), file)
	if n := len(log.records); n != 0 {
		t.Errorf("%d more errors were logged, want one only", n)
	}
	stop()

	// With the next run it tries again.
	limit(t, "max_inotify_instances", "1")
	stop = start(t, one)
	defer stop()
	live(t, one, root)
	if n := len(log.records); n != 0 {
		t.Errorf("%d more errors were logged, want one only", n)
	}
}
