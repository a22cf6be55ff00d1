package watch_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/watch"
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

func TestOverflowIsAChange(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	if limit > 1<<17 {
		t.Skipf("the kernel queues %d events", limit)
	}

	root := t.TempDir()
	var armed atomic.Bool
	blocked, release := make(chan struct{}, 1), make(chan struct{})
	w := serve(t, root, watch.Options{Debounce: quick, Ignore: func(path string, _ bool) bool {
		if !strings.HasPrefix(path, "noise") {
			return false
		}
		if armed.CompareAndSwap(true, false) {
			blocked <- struct{}{}
			<-release
		}
		return true
	}})
	live(t, w, root)

	// While Serve is held in Ignore, the kernel's queue fills with events that
	// count for nothing, and drops the one that does.
	armed.Store(true)
	noise := [2]*os.File{}
	for i := range noise {
		noise[i], err = os.Create(filepath.Join(root, "noise-"+strconv.Itoa(i)))
		must(t, err)
		defer func() { must(t, noise[i].Close()) }()
	}
	<-blocked
	for i := range limit + 8192 {
		_, err := noise[i%2].WriteString("x")
		must(t, err)
	}
	put(t, filepath.Join(root, "lost"), "")
	close(release)

	wantPath(t, next(t, w), root)
	live(t, w, root)
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

		var hint string
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "hint" {
				hint = a.Value.String()
			}
			return true
		})
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
